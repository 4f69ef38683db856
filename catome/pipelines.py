"""How many rows of the U-Net's batch belong to one image, by the class of a Diffusers pipeline.

Rows of an image are B / rows apart, as pipelines stack them. What a pipeline does not tell is not
guessed: the class is then in neither table, and users say it (`copies`).
"""

from collections.abc import Callable


def _guided(pipe: object, batch: int) -> int:
    return 2 if pipe.do_classifier_free_guidance else 1


def _instructed(pipe: object, batch: int) -> int:
    return 3 if pipe.do_classifier_free_guidance else 1


def _perturbed(pipe: object, batch: int) -> int:
    return 1 + bool(pipe.do_classifier_free_guidance) + bool(pipe.do_perturbed_attention_guidance)


def _edited(pipe: object, batch: int) -> int:
    return batch // pipe.batch_size


def _one(pipe: object, batch: int) -> int:
    return 1


def _panorama(pipe: object, batch: int) -> int:
    rows = 2 if pipe._guidance_scale > 1 else 1  # its do_classifier_free_guidance is always False
    if batch > rows:
        raise ValueError(
            "view_batch_size: must be 1 with count='image', as the rows of views alternate; or "
            "use count='batch'"
        )
    return rows


# {the class whose __call__ runs: (pipeline, rows of the batch) -> rows of an image}
ROWS: dict[str, Callable[[object, int], int]] = {
    **dict.fromkeys(
        (
            "AltDiffusionImg2ImgPipeline",
            "AltDiffusionPipeline",
            "AnimateDiffControlNetPipeline",
            "AnimateDiffPipeline",
            "AnimateDiffSDXLPipeline",
            "AnimateDiffSparseControlNetPipeline",
            "AnimateDiffVideoToVideoControlNetPipeline",
            "AnimateDiffVideoToVideoPipeline",
            "KolorsImg2ImgPipeline",
            "KolorsPipeline",
            "PIAPipeline",
            "StableDiffusionAdapterPipeline",
            "StableDiffusionControlNetImg2ImgPipeline",
            "StableDiffusionControlNetInpaintPipeline",
            "StableDiffusionControlNetPipeline",
            "StableDiffusionDepth2ImgPipeline",
            "StableDiffusionImg2ImgPipeline",
            "StableDiffusionInpaintPipeline",
            "StableDiffusionLDM3DPipeline",
            "StableDiffusionPipeline",
            "StableDiffusionXLAdapterPipeline",
            "StableDiffusionXLControlNetImg2ImgPipeline",
            "StableDiffusionXLControlNetInpaintPipeline",
            "StableDiffusionXLControlNetPipeline",
            "StableDiffusionXLControlNetUnionImg2ImgPipeline",
            "StableDiffusionXLControlNetUnionInpaintPipeline",
            "StableDiffusionXLControlNetUnionPipeline",
            "StableDiffusionXLImg2ImgPipeline",
            "StableDiffusionXLInpaintPipeline",
            "StableDiffusionXLPipeline",
        ),
        _guided,
    ),
    **dict.fromkeys(
        (
            "AnimateDiffPAGPipeline",
            "KolorsPAGPipeline",
            "StableDiffusionControlNetPAGInpaintPipeline",
            "StableDiffusionControlNetPAGPipeline",
            "StableDiffusionPAGImg2ImgPipeline",
            "StableDiffusionPAGInpaintPipeline",
            "StableDiffusionPAGPipeline",
            "StableDiffusionXLControlNetPAGImg2ImgPipeline",
            "StableDiffusionXLControlNetPAGPipeline",
            "StableDiffusionXLPAGImg2ImgPipeline",
            "StableDiffusionXLPAGInpaintPipeline",
            "StableDiffusionXLPAGPipeline",
        ),
        _perturbed,
    ),
    "LEditsPPPipelineStableDiffusion": _edited,
    "LEditsPPPipelineStableDiffusionXL": _edited,
    "LatentConsistencyModelImg2ImgPipeline": _one,
    "LatentConsistencyModelPipeline": _one,
    "StableDiffusionInstructPix2PixPipeline": _instructed,
    "StableDiffusionPanoramaPipeline": _panorama,
}

# Pipelines whose U-Net cannot be given one number of rows an image, and why.
NO_ROWS = {
    "StableDiffusionAttendAndExcitePipeline": "evaluates single images and whole batches in turns",
    "StableDiffusionDiffEditPipeline": "compares two prompts before it guides one",
    "StableDiffusionPix2PixZeroPipeline": "evaluates guided and unguided rows in turns",
    "TextToVideoZeroPipeline": "lets frames attend to each other",
    "TextToVideoZeroSDXLPipeline": "lets frames attend to each other",
}


def class_that_runs(pipe: object) -> str | None:
    """The Diffusers class whose `__call__` a pipeline runs, by name; None if it is no such class.

    A subclass with a `__call__` of its own may stack its rows as it likes.
    """
    for cls in type(pipe).__mro__:
        if "__call__" in vars(cls):
            return cls.__name__ if cls.__module__.startswith("diffusers.") else None
    return None


def rows_an_image(pipe: object, batch: int) -> int | None:
    """Rows of each image in the present evaluation; None if the pipeline does not tell.

    Args:
        batch: rows that the U-Net was given.

    Raises:
        ValueError: the pipeline mixes its rows.
    """
    rule = ROWS.get(class_that_runs(pipe))
    try:
        return None if rule is None else rule(pipe, batch)
    except AttributeError:  # guidance is an attribute that the pipeline's call sets
        return None
