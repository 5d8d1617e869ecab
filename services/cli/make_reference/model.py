"""A model in transformers: loaded from a folder or a GGUF, its rows of logits."""

import contextlib
import inspect
import json
import pathlib
import sys
import types

import torch
import transformers

import reference_file
from failure import Failure

_LOGITS_BYTES = 1 << 28  # of a piece of logits, in double
_NO_LIMIT = 1 << 30
# Matrices that transformers widens by itself, by the name that configs give them.
_WIDENED = {"mxfp4": lambda: transformers.Mxfp4Config(dequantize=True),
            "fp8": lambda: transformers.FineGrainedFP8Config(dequantize=True)}


class _Double(types.ModuleType):
    """torch, for a module that names its dtypes: float32 is float64."""

    def __getattr__(self, name):
        return getattr(torch, "float64" if name in ("float32", "float")
                       else name)


def _in_double():
    """Makes what transformers has loaded compute in double, also where its
    modules ask for float32: norms, softmaxes, routers, rotary tables."""
    torch.set_default_dtype(torch.float64)
    torch.Tensor.float = torch.Tensor.double
    double = _Double("torch")
    for name, module in list(sys.modules.items()):
        if name.startswith("transformers.") and hasattr(module, "torch"):
            if "modeling_" in name or name.startswith(
                    "transformers.integrations"):
                module.torch = double


def is_out_of_memory(error):
    return isinstance(error, MemoryError) or any(
        words in str(error) for words in
        ("can't allocate memory", "not enough memory", "Cannot allocate"))


class Model:
    """A loaded model. `trusts_cache` is the caller's to change."""

    def __init__(self, model, tokenizer, kind):
        self._model = model
        self.tokenizer = tokenizer
        self.kind = kind
        self.trusts_cache = True
        text = model.config.get_text_config()
        self.vocab_size = model.get_output_embeddings().weight.shape[0]
        self.context = getattr(text, "max_position_embeddings",
                               None) or _NO_LIMIT
        self.attention = getattr(text, "_attn_implementation", "")
        self.end_ids = self._ends()
        names = inspect.signature(model.forward).parameters
        self._keeps = "logits_to_keep" in names
        # Newer code has another name for the cache.
        self._cache = "cache" if "cache" in names else "past_key_values"
        self._in_pieces = self._keeps and self._pieces_agree()

    def _ends(self):
        found = set()
        for config in (self._model.config, self._model.generation_config):
            ends = getattr(config, "eos_token_id", None)
            found.update(ends if isinstance(ends, list) else [ends])
        return found - {None}

    def text(self, ids):
        return self.tokenizer.decode(ids, skip_special_tokens=False)

    def last_row(self, ids, cache, cached):
        """(logits behind the last id, cache)"""
        keep = {"logits_to_keep": 1} if self._keeps else {}
        if cache is not None:
            keep[self._cache] = cache
        out = self._model(torch.tensor([ids]), use_cache=cached, **keep)
        return out.logits[0, -1], out.past_key_values if cached else None

    def rows(self, ids):
        """Yields the logits [n, V] behind all ids, in pieces. The layers run
        once, the output matrix once per piece."""
        given = torch.tensor([ids])
        if not self._in_pieces:
            yield self._model(given, use_cache=False).logits[0]
            return
        base = self._model.base_model
        hidden = base(given, use_cache=False)
        piece = max(1, _LOGITS_BYTES // (8 * self.vocab_size))
        with _answering(base, hidden):
            for begin in range(0, len(ids), piece):
                kept = torch.arange(begin, min(begin + piece, len(ids)))
                yield self._model(given, use_cache=False,
                                  logits_to_keep=kept).logits[0]

    def _pieces_agree(self):
        """Whether the logits of pieces are those of the whole: a model's code may
        call its layers in another way."""
        base = self._model.base_model
        if base is self._model:
            return False
        given = torch.tensor([[token % self.vocab_size
                               for token in range(3, 12)]])
        whole = self._model(given, use_cache=False).logits[0]
        try:
            hidden = base(given, use_cache=False)
            with _answering(base, hidden):
                part = self._model(given, use_cache=False, logits_to_keep=
                                   torch.tensor([2, 5])).logits[0]
        except (TypeError, ValueError, AttributeError, RuntimeError):
            return False
        return (part.shape[0] == 2 and
                torch.allclose(part, whole[[2, 5]], rtol=1e-4, atol=1e-4))


@contextlib.contextmanager
def _answering(module, answer):
    """The module gives this answer to every call."""
    module.forward = lambda *_, **__: answer
    try:
        yield
    finally:
        del module.forward


def _read_config(folder):
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise Failure(f"{folder} is no model that transformers reads: "
                      f"{path}: {error}") from error
    kind = config.get("model_type")
    known = transformers.models.auto.configuration_auto.CONFIG_MAPPING
    if kind not in known:
        own = (" (its own code, which config.json's auto_map names, is not run)"
               if "auto_map" in config else "")
        raise Failure(f"transformers {transformers.__version__} does not know "
                      f"the model type '{kind}' of {path}{own}")
    return config


def _class_of(config):
    """The class that loads a model: those that read images have another."""
    kind = transformers.AutoModelForCausalLM
    if type(config) in kind._model_mapping:
        return kind
    kind = transformers.AutoModelForImageTextToText
    if type(config) in kind._model_mapping:
        return kind
    raise Failure(f"transformers {transformers.__version__} has no language "
                  f"model of type '{config.model_type}'")


def _load_folder(folder, dtype):
    raw = _read_config(folder)
    reference_file.check_memory(reference_file.count_parameters(folder),
                                dtype.itemsize, str(dtype)[6:],
                                reference_file.available_memory())
    config = transformers.AutoConfig.from_pretrained(folder)
    kind = _class_of(config)
    _ = kind._model_mapping[type(config)]  # Imports the code to change.
    if dtype == torch.float64:
        _in_double()
    options = {"experts_implementation": "eager"}  # It takes double, too.
    method = (raw.get("quantization_config") or {}).get("quant_method")
    if method in _WIDENED:
        options["quantization_config"] = _WIDENED[method]()
    found, report = kind.from_pretrained(folder, dtype=dtype,
                                         output_loading_info=True, **options)
    for key in ("missing_keys", "mismatched_keys", "error_msgs"):
        if report.get(key):
            raise Failure(f"{folder}: transformers reports {key}: "
                          f"{', '.join(map(str, list(report[key])[:5]))}")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    return found, tokenizer


def _load_gguf(path, dtype):
    """The weights of a GGUF, widened: the reference of what its blocks say."""
    place = {"pretrained_model_name_or_path": str(path.parent),
             "gguf_file": path.name}
    kind = transformers.AutoModelForCausalLM
    found = kind.from_pretrained(**place, dtype=dtype)
    if dtype == torch.float64:
        # Made again, so that tables are computed in double, too.
        _in_double()
        config = found.config
        if hasattr(config, "quantization_config"):
            del config.quantization_config
        again = kind.from_config(config, dtype=dtype)
        again.load_state_dict(found.state_dict())
        found = again
    return found, transformers.AutoTokenizer.from_pretrained(**place)


def load(path, dtype_name):
    """A Model of a folder or a GGUF. Failure says what transformers says."""
    path, dtype = pathlib.Path(path), getattr(torch, dtype_name)
    is_gguf = path.is_file()
    print(f"loading {path} in {dtype_name}", file=sys.stderr)
    try:
        found, tokenizer = (_load_gguf if is_gguf else _load_folder)(path,
                                                                     dtype)
    except Failure:
        raise
    except Exception as error:  # Of any kind: the library's.
        if is_out_of_memory(error):
            raise
        words = str(error).strip().splitlines() or [""]
        raise Failure(
            f"transformers {transformers.__version__} could not load "
            f"{path}: {type(error).__name__}: {words[0]}") from error
    return Model(found.eval(), tokenizer,
                 found.config.get_text_config().model_type)
