"""The default model as a folder that transformers reads, made once."""

import json

import harness

FOLDER = harness.ROOT / "build" / "evals-model"


def _unpack(source):
    # Late: these take seconds, and a gigabyte or two.
    import safetensors.torch
    import transformers
    where = dict(pretrained_model_name_or_path=str(source.parent),
                 gguf_file=source.name)
    transformers.AutoTokenizer.from_pretrained(**where).save_pretrained(
        FOLDER)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        **where, dtype="float32")
    # Its own save refuses what came from a GGUF, although it is plain F32 by
    # now. The tied output matrix is the embedding.
    tensors = {name: tensor.contiguous()
               for name, tensor in model.state_dict().items()
               if name != "lm_head.weight"}
    safetensors.torch.save_file(tensors, FOLDER / "model.safetensors",
                                {"format": "pt"})
    config = model.config.to_dict()
    config.pop("quantization_config", None)
    (FOLDER / "config.json").write_text(
        json.dumps({**config, "architectures": [type(model).__name__],
                    "dtype": "float32"}, default=str))


def folder():
    """Path of the folder, the GGUF's weights and tokenizer unpacked."""
    if not (FOLDER / "done").exists():
        _unpack(harness.default_model())
        (FOLDER / "done").touch()
    return str(FOLDER)


if __name__ == "__main__":
    print(folder())
