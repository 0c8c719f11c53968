"""Plug-ins: what a family of vision-language models needs. One file a family; see finetune/families.py."""
