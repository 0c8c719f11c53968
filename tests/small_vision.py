"""Tiny checkpoints of the real vision classes, with random weights: what they say means nothing, how is real."""

from __future__ import annotations

import json
from pathlib import Path

IMAGENET = {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}
SAM_EYE = {
    "hidden_size": 16,
    "output_channels": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_size": 64,
    "patch_size": 16,
    "mlp_dim": 16,
    "global_attn_indexes": [0],
    "window_size": 2,
    "num_pos_feats": 4,
}
SAM_PROMPT = {"hidden_size": 8, "image_size": 64, "patch_size": 16, "mask_input_channels": 4}
SAM_HEAD = {"hidden_size": 8, "mlp_dim": 16, "num_attention_heads": 2, "iou_head_hidden_dim": 8}
SAM_VIDEO = {
    "mask_decoder_config": {
        "hidden_size": 32,
        "mlp_dim": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "iou_head_hidden_dim": 8,
    },
    "image_size": 64,
    "memory_attention_hidden_size": 32,
    "memory_attention_num_layers": 1,
    "memory_attention_feed_forward_hidden_size": 16,
    "memory_encoder_hidden_size": 32,
    "memory_encoder_output_channels": 8,
    "mask_downsampler_embed_dim": 32,
    "memory_fuser_embed_dim": 32,
    "memory_fuser_intermediate_dim": 16,
}
"""What the trackers of SAM 2 and 3 share."""
_ALPHABET = "abcdefghijklmnopqrstuvwxyz"
PIECES = [*_ALPHABET, *(f"{letter}</w>" for letter in _ALPHABET), "<|startoftext|>", "<|endoftext|>"]
"""Of a byte-pair tokenizer that knows letters only."""
LABELS = {0: "cat", 1: "dog", 2: "kite"}
REAL_TIME = {
    "encoder_hidden_dim": 16,
    "encoder_in_channels": [16, 16, 16],
    "encoder_ffn_dim": 16,
    "encoder_attention_heads": 2,
    "d_model": 16,
    "decoder_in_channels": [16, 16, 16],
    "decoder_ffn_dim": 16,
    "decoder_layers": 2,
    "decoder_attention_heads": 2,
    "num_queries": 10,
    "num_denoising": 0,
    "id2label": LABELS,
    "label2id": {label: index for index, label in LABELS.items()},
}
"""What RT-DETR and its descendant D-FINE have in common."""


def depth_anything(folder: Path, metric: bool = False) -> Path:
    """Depth Anything V2; in metres up to 20 m where `metric`."""
    import torch
    from transformers import DepthAnythingConfig, DepthAnythingForDepthEstimation, Dinov2Config, DPTImageProcessor

    torch.manual_seed(0)
    backbone = Dinov2Config(
        hidden_size=16,
        num_hidden_layers=4,
        num_attention_heads=2,
        image_size=70,
        patch_size=14,
        out_features=["stage1", "stage2", "stage3", "stage4"],
        reshape_hidden_states=False,
        apply_layernorm=True,
    )
    config = DepthAnythingConfig(
        backbone_config=backbone,
        reassemble_hidden_size=16,
        patch_size=14,
        neck_hidden_sizes=[4, 4, 8, 8],
        fusion_hidden_size=4,
        head_hidden_size=4,
        depth_estimation_type="metric" if metric else "relative",
        max_depth=20 if metric else 1,
    )
    model = DepthAnythingForDepthEstimation(config)
    for name, parameter in model.named_parameters():
        # As initialised, the network says 0 everywhere behind its last ReLU.
        torch.nn.init.normal_(parameter, 1.0 if name == "head.conv3.bias" else 0.0, 0.3)
    model.save_pretrained(folder)
    DPTImageProcessor(
        size={"height": 70, "width": 70}, keep_aspect_ratio=True, ensure_multiple_of=14, **IMAGENET
    ).save_pretrained(folder)
    return folder


def dpt(folder: Path) -> Path:
    """DPT: its config does not say what comes out."""
    import torch
    from transformers import DPTConfig, DPTForDepthEstimation, DPTImageProcessor

    torch.manual_seed(0)
    config = DPTConfig(
        hidden_size=16,
        num_hidden_layers=4,
        num_attention_heads=2,
        intermediate_size=16,
        image_size=64,
        patch_size=16,
        is_hybrid=False,
        backbone_out_indices=[0, 1, 2, 3],
        neck_hidden_sizes=[4, 4, 8, 8],
        fusion_hidden_size=4,
    )
    DPTForDepthEstimation(config).save_pretrained(folder)
    DPTImageProcessor(size={"height": 64, "width": 64}, do_pad=True, size_divisor=32).save_pretrained(folder)
    return folder


def zoedepth(folder: Path) -> Path:
    """ZoeDepth, with its padding."""
    import torch
    from transformers import BeitConfig, ZoeDepthConfig, ZoeDepthForDepthEstimation, ZoeDepthImageProcessor

    torch.manual_seed(0)
    backbone = BeitConfig(
        image_size=64,
        num_hidden_layers=4,
        hidden_size=16,
        intermediate_size=16,
        num_attention_heads=2,
        out_features=["stage1", "stage2", "stage3", "stage4"],
        reshape_hidden_states=False,
        use_relative_position_bias=True,
    )
    config = ZoeDepthConfig(
        backbone_config=backbone,
        neck_hidden_sizes=[4, 4, 8, 8],
        fusion_hidden_size=4,
        bottleneck_features=4,
        num_relative_features=4,
        bin_embedding_dim=8,
        num_attractors=[4, 2, 2, 1],
    )
    ZoeDepthForDepthEstimation(config).save_pretrained(folder)
    ZoeDepthImageProcessor(size={"height": 64, "width": 64}, ensure_multiple_of=32).save_pretrained(folder)
    return folder


def depth_pro(folder: Path, field_of_view: bool) -> Path:
    """Depth Pro, with or without the head that gives metres."""
    import torch
    from transformers import DepthProConfig, DepthProForDepthEstimation, DepthProImageProcessor, Dinov2Config

    torch.manual_seed(0)
    size = {"image_size": 32, "patch_size": 8, "hidden_size": 16, "num_hidden_layers": 4, "num_attention_heads": 2}
    config = DepthProConfig(
        patch_size=32,
        fusion_hidden_size=16,
        intermediate_hook_ids=[2, 0],
        intermediate_feature_dims=[8, 8],
        scaled_images_ratios=[0.5, 1.0],
        scaled_images_overlap_ratios=[0.0, 0.2],
        scaled_images_feature_dims=[8, 8],
        use_fov_model=field_of_view,
        image_model_config=Dinov2Config(**size),
        patch_model_config=Dinov2Config(**size),
        fov_model_config=Dinov2Config(**size),
    )
    DepthProForDepthEstimation(config).save_pretrained(folder)
    DepthProImageProcessor(size={"height": 64, "width": 64}).save_pretrained(folder)
    return folder


def rt_detr(folder: Path) -> Path:
    """RT-DETR v2."""
    import torch
    from transformers import RTDetrImageProcessor, RTDetrResNetConfig, RTDetrV2Config, RTDetrV2ForObjectDetection

    torch.manual_seed(0)
    backbone = RTDetrResNetConfig(
        embedding_size=8,
        hidden_sizes=[8, 16, 16, 16],
        depths=[1, 1, 1, 1],
        layer_type="basic",
        out_features=["stage2", "stage3", "stage4"],
    )
    config = RTDetrV2Config(
        backbone_config=backbone,
        **REAL_TIME,
    )
    RTDetrV2ForObjectDetection(config).save_pretrained(folder)
    RTDetrImageProcessor(size={"height": 64, "width": 64}).save_pretrained(folder)
    return folder


def detr(folder: Path) -> Path:
    """DETR, whose input keeps the photo's shape and comes with a mask of what is photo."""
    import torch
    from transformers import DetrConfig, DetrForObjectDetection, DetrImageProcessor, ResNetConfig

    torch.manual_seed(0)
    backbone = ResNetConfig(
        embedding_size=8,
        hidden_sizes=[8, 8, 16, 16],
        depths=[1, 1, 1, 1],
        layer_type="basic",
        out_features=["stage4"],
    )
    config = DetrConfig(
        use_timm_backbone=False,
        use_pretrained_backbone=False,
        backbone=None,
        backbone_config=backbone,
        d_model=16,
        encoder_layers=1,
        encoder_ffn_dim=16,
        encoder_attention_heads=2,
        decoder_layers=1,
        decoder_ffn_dim=16,
        decoder_attention_heads=2,
        num_queries=10,
        id2label=LABELS,
        label2id={label: index for index, label in LABELS.items()},
    )
    DetrForObjectDetection(config).save_pretrained(folder)
    DetrImageProcessor(size={"shortest_edge": 64, "longest_edge": 96}).save_pretrained(folder)
    return folder


def d_fine(folder: Path) -> Path:
    """D-FINE."""
    import torch
    from transformers import DFineConfig, DFineForObjectDetection, HGNetV2Config, RTDetrImageProcessor

    torch.manual_seed(0)
    backbone = HGNetV2Config(
        embedding_size=8,
        stem_channels=[3, 8, 8],
        hidden_sizes=[8, 16, 16, 16],
        depths=[1, 1, 1, 1],
        stage_in_channels=[8, 16, 16, 16],
        stage_mid_channels=[8, 8, 8, 8],
        stage_out_channels=[16, 16, 16, 16],
        stage_num_blocks=[1, 1, 1, 1],
        stage_numb_of_layers=[1, 1, 1, 1],
        out_features=["stage2", "stage3", "stage4"],
    )
    config = DFineConfig(
        backbone_config=backbone,
        **REAL_TIME,
    )
    DFineForObjectDetection(config).save_pretrained(folder)
    RTDetrImageProcessor(size={"height": 64, "width": 64}).save_pretrained(folder)
    return folder


def rf_detr(folder: Path) -> Path:
    """RF-DETR."""
    import torch
    from transformers import RfDetrConfig, RfDetrForObjectDetection, RfDetrImageProcessor

    torch.manual_seed(0)
    backbone = {
        "model_type": "rf_detr_dinov2",
        "hidden_size": 16,
        "num_hidden_layers": 4,
        "num_attention_heads": 2,
        "image_size": 64,
        "patch_size": 8,
        "num_windows": 2,
        "window_block_indexes": [0, 1, 3],
        "out_features": ["stage1", "stage2", "stage3", "stage4"],
    }
    config = RfDetrConfig(
        backbone_config=backbone,
        d_model=16,
        decoder_layers=1,
        decoder_ffn_dim=16,
        decoder_self_attention_heads=2,
        decoder_cross_attention_heads=2,
        num_queries=10,
        group_detr=1,
        id2label=LABELS,
        label2id={label: index for index, label in LABELS.items()},
    )
    RfDetrForObjectDetection(config).save_pretrained(folder)
    RfDetrImageProcessor(size={"height": 64, "width": 64}).save_pretrained(folder)
    return folder


def grounding_dino(folder: Path) -> Path:
    """Grounding DINO with a word-piece tokenizer of a few words."""
    import torch
    from transformers import (
        BertConfig,
        BertTokenizer,
        GroundingDinoConfig,
        GroundingDinoForObjectDetection,
        GroundingDinoImageProcessor,
        GroundingDinoProcessor,
        SwinConfig,
    )

    torch.manual_seed(0)
    # The model finds phrases by the ids that BERT's vocabulary has for [CLS], [SEP], "." and "?".
    ids = {"[PAD]": 0, "[UNK]": 100, "[CLS]": 101, "[SEP]": 102, "[MASK]": 103, ".": 1012, "?": 1029}
    ids |= {word: 200 + i for i, word in enumerate(("-", "cat", "dog", "traffic", "light", "t", "shirt"))}
    words = {i: word for word, i in ids.items()}
    tokenizer = BertTokenizer(vocab={words.get(i, f"[unused{i}]"): i for i in range(1040)})
    text = BertConfig(vocab_size=1040, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16)
    backbone = SwinConfig(
        image_size=64,
        embed_dim=8,
        depths=[1, 1, 1, 1],
        num_heads=[1, 1, 1, 1],
        window_size=4,
        out_features=["stage2", "stage3", "stage4"],
    )
    config = GroundingDinoConfig(
        backbone_config=backbone,
        text_config=text,
        num_queries=10,
        encoder_layers=1,
        encoder_ffn_dim=16,
        encoder_attention_heads=2,
        decoder_layers=2,
        decoder_ffn_dim=16,
        decoder_attention_heads=2,
        d_model=32,
        max_text_len=24,
    )
    GroundingDinoForObjectDetection(config).save_pretrained(folder)
    images = GroundingDinoImageProcessor(size={"shortest_edge": 64, "longest_edge": 96})
    GroundingDinoProcessor(images, tokenizer).save_pretrained(folder)
    return folder


def owlv2(folder: Path) -> Path:
    """OWLv2 with a byte-pair tokenizer that knows letters only."""
    import torch
    from transformers import CLIPTokenizer, Owlv2Config, Owlv2ForObjectDetection, Owlv2ImageProcessor, Owlv2Processor

    torch.manual_seed(0)
    tokenizer = CLIPTokenizer(vocab={piece: i for i, piece in enumerate(PIECES)}, merges=[])
    tower = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = Owlv2Config(
        text_config={
            **tower,
            "vocab_size": len(PIECES),
            "max_position_embeddings": 24,
            "bos_token_id": len(PIECES) - 2,
            "eos_token_id": len(PIECES) - 1,
        },
        vision_config={**tower, "image_size": 64, "patch_size": 16},
        projection_dim=16,
    )
    Owlv2ForObjectDetection(config).save_pretrained(folder)
    Owlv2Processor(Owlv2ImageProcessor(size={"height": 64, "width": 64}), tokenizer).save_pretrained(folder)
    return folder


def sam(folder: Path) -> Path:
    """The first SAM."""
    import torch
    from transformers import SamConfig, SamImageProcessor, SamModel, SamProcessor

    torch.manual_seed(0)
    config = SamConfig(vision_config=SAM_EYE, prompt_encoder_config=SAM_PROMPT, mask_decoder_config=SAM_HEAD)
    SamModel(config).save_pretrained(folder)
    images = SamImageProcessor(size={"longest_edge": 64}, pad_size={"height": 64, "width": 64})
    SamProcessor(images).save_pretrained(folder)
    return folder


def sam_hq(folder: Path) -> Path:
    """SAM-HQ."""
    import torch
    from transformers import SamHQConfig, SamHQModel, SamHQProcessor, SamImageProcessor

    torch.manual_seed(0)
    config = SamHQConfig(
        vision_config=SAM_EYE,
        prompt_encoder_config=SAM_PROMPT,
        mask_decoder_config={**SAM_HEAD, "vit_dim": 16},
    )
    SamHQModel(config).save_pretrained(folder)
    images = SamImageProcessor(size={"longest_edge": 64}, pad_size={"height": 64, "width": 64})
    SamHQProcessor(images).save_pretrained(folder)
    return folder


def sam2(folder: Path) -> Path:
    """SAM 2 as it is published: the model and the processor for videos."""
    import torch
    from transformers import (
        Sam2ImageProcessor,
        Sam2VideoConfig,
        Sam2VideoModel,
        Sam2VideoProcessor,
        Sam2VideoVideoProcessor,
    )

    torch.manual_seed(0)
    config = Sam2VideoConfig(
        vision_config={
            "backbone_config": {
                "model_type": "sam2_hiera_det_model",
                "hidden_size": 8,
                "num_attention_heads": 1,
                "image_size": [64, 64],
                "blocks_per_stage": [1, 1, 2, 1],
                "embed_dim_per_stage": [8, 16, 32, 64],
                "num_attention_heads_per_stage": [1, 1, 2, 2],
                "window_size_per_stage": [4, 4, 4, 4],
                "global_attention_blocks": [3],
                "window_positional_embedding_background_size": [4, 4],
            },
            "backbone_channel_list": [64, 32, 16, 8],
            "backbone_feature_sizes": [[16, 16], [8, 8], [4, 4]],
            "fpn_hidden_size": 32,
        },
        prompt_encoder_config={"hidden_size": 32, "image_size": 64, "patch_size": 16, "mask_input_channels": 4},
        **SAM_VIDEO,
        memory_attention_rope_feat_sizes=[4, 4],
    )
    Sam2VideoModel(config).save_pretrained(folder)
    size = {"height": 64, "width": 64}
    Sam2VideoProcessor(Sam2ImageProcessor(size=size), Sam2VideoVideoProcessor(size=size)).save_pretrained(folder)
    return folder


def sam3(folder: Path) -> Path:
    """SAM 3 as it is published: detector and tracker in one file, under the names that they have in the whole model."""
    import torch
    from safetensors.torch import save_file
    from transformers import (
        CLIPTokenizer,
        Sam2VideoVideoProcessor,
        Sam3Config,
        Sam3ImageProcessor,
        Sam3TrackerVideoConfig,
        Sam3VideoConfig,
        Sam3VideoModel,
        Sam3VideoProcessor,
    )

    torch.manual_seed(0)
    eye = {
        "backbone_config": {
            "model_type": "sam3_vit_model",
            "hidden_size": 16,
            "intermediate_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "image_size": 64,
            "patch_size": 8,
            "window_size": 4,
            "global_attn_indexes": [1],
            "pretrain_image_size": 32,
        },
        "fpn_hidden_size": 32,
        "backbone_feature_sizes": [[32, 32], [16, 16], [8, 8]],
    }
    layers = {"hidden_size": 32, "num_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    detector = Sam3Config(
        vision_config=eye,
        text_config={
            "vocab_size": 99,
            "hidden_size": 16,
            "intermediate_size": 16,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "projection_dim": 16,
        },
        geometry_encoder_config=layers,
        detr_encoder_config=layers,
        detr_decoder_config={**layers, "num_queries": 3},
        mask_decoder_config={"hidden_size": 32, "num_upsampling_stages": 1, "num_attention_heads": 2},
    )
    tracker = Sam3TrackerVideoConfig(
        vision_config=eye,
        prompt_encoder_config={"hidden_size": 32, "image_size": 64, "patch_size": 8, "mask_input_channels": 4},
        **SAM_VIDEO,
        memory_attention_rope_feat_sizes=[8, 8],
    )
    model = Sam3VideoModel(Sam3VideoConfig(detector_config=detector, tracker_config=tracker))
    model.config.save_pretrained(folder)
    # save_pretrained would double the tracker's prefix, which the published file has once.
    weights = {name: value.clone().contiguous() for name, value in model.state_dict().items()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    size = {"height": 64, "width": 64}
    images, videos = Sam3ImageProcessor(size=size), Sam2VideoVideoProcessor(size=size)
    tokenizer = CLIPTokenizer(vocab={piece: i for i, piece in enumerate(PIECES)}, merges=[])
    Sam3VideoProcessor(images, videos, tokenizer).save_pretrained(folder)
    return folder


def mask2former(folder: Path) -> Path:
    """Mask2Former."""
    import torch
    from transformers import (
        Mask2FormerConfig,
        Mask2FormerForUniversalSegmentation,
        Mask2FormerImageProcessor,
        SwinConfig,
    )

    torch.manual_seed(0)
    backbone = SwinConfig(
        image_size=64,
        embed_dim=8,
        depths=[1, 1, 1, 1],
        num_heads=[1, 1, 1, 1],
        window_size=4,
        out_features=["stage1", "stage2", "stage3", "stage4"],
    )
    config = Mask2FormerConfig(
        backbone_config=backbone,
        feature_size=32,
        mask_feature_size=32,
        hidden_dim=32,
        encoder_feedforward_dim=16,
        encoder_layers=1,
        decoder_layers=2,
        num_attention_heads=2,
        dim_feedforward=16,
        num_queries=5,
        id2label=LABELS,
        label2id={label: index for index, label in LABELS.items()},
    )
    Mask2FormerForUniversalSegmentation(config).save_pretrained(folder)
    Mask2FormerImageProcessor(size={"height": 64, "width": 64}).save_pretrained(folder)
    return folder


def clip(folder: Path) -> Path:
    """A CLIP of open_clip; its tokenizer comes with the package."""
    import open_clip
    import torch
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "embed_dim": 16,
        "vision_cfg": {"image_size": 32, "layers": 1, "width": 16, "head_width": 8, "patch_size": 8},
        "text_cfg": {"context_length": 77, "vocab_size": 49408, "width": 16, "heads": 2, "layers": 1},
    }
    (folder / "open_clip_config.json").write_text(json.dumps({"model_cfg": config, "preprocess_cfg": {}}))
    torch.manual_seed(0)
    model = open_clip.create_model(f"local-dir:{folder}", load_weights=False)
    save_file(model.state_dict(), folder / "open_clip_model.safetensors")
    return folder
