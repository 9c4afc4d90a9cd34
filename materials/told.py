"""Stories that stories15M tells: synthetic text of the only kind it is at home in, for TinyStories is not to be had.

Every token is drawn from what the model predicts, nothing cut off and nothing sharpened, so its loss on them is what it
expects of itself. A story begins at the beginning token, and ends where the model ends it or the context does.

    train.jsonl, test.jsonl     {"text": a story, "source": "sampled from stories15M"} a line
"""

import json
from pathlib import Path

import torch
from transformers.cache_utils import StaticCache
from transformers.models.auto.tokenization_auto import AutoTokenizer
from transformers.models.llama.modeling_llama import LlamaForCausalLM
from transformers.tokenization_utils_tokenizers import PreTrainedTokenizerFast

TOGETHER = 128
PARTS = {"test": 1, "train": 11}
"""How often so many are told together: about 25,000 tokens and 280,000."""
SOURCE = "sampled from stories15M"


def make(downloads: Path, folder: Path) -> None:
    """About eight minutes on one core: the model is beside the downloads."""
    home = downloads.parent / "stories15M"
    model, tokenizer = LlamaForCausalLM.from_pretrained(home).eval(), AutoTokenizer.from_pretrained(home)
    assert isinstance(tokenizer, PreTrainedTokenizerFast)
    numbers = iter(range(sum(PARTS.values())))
    for name, times in PARTS.items():
        with (folder / f"{name}.jsonl").open("w") as file:
            for _ in range(times):
                number = next(numbers)
                print(f"telling {TOGETHER} stories, {number + 1} of {sum(PARTS.values())}", flush=True)
                for tokens in tell(model, TOGETHER, number):
                    file.write(json.dumps({"text": tokenizer.decode(tokens), "source": SOURCE}) + "\n")


@torch.no_grad()
def tell(model: LlamaForCausalLM, amount: int, seed: int) -> list[list[int]]:
    """So many stories as tokens, without those that begin and end them; one that ends at once is left out."""
    config, most, begin = model.config, model.config.max_position_embeddings, model.config.bos_token_id
    assert begin is not None
    special = torch.tensor([begin, config.eos_token_id])
    chance, cache = torch.Generator().manual_seed(seed), StaticCache(config=config, max_cache_len=most)
    told = torch.full((amount, 1), begin)
    ended = torch.zeros(amount, dtype=torch.bool)
    while told.shape[1] < most and not ended.all():
        place = torch.tensor([told.shape[1] - 1])
        logits = model(input_ids=told[:, -1:], past_key_values=cache, cache_position=place).logits[:, -1]
        told = torch.cat([told, draw(logits, chance)], 1)
        ended |= torch.isin(told[:, -1], special)
    stories = [_until(row[1:], special) for row in told]
    return [story for story in stories if story]


def draw(logits: torch.Tensor, chance: torch.Generator) -> torch.Tensor:
    """A token a row, by its probability: where a uniform number falls in their running sum."""
    running = logits.double().softmax(-1).cumsum(-1)
    uniform = torch.rand(len(logits), 1, generator=chance, dtype=torch.float64) * running[:, -1:]
    return torch.searchsorted(running, uniform, right=True).clamp_max(logits.shape[-1] - 1)


def _until(row: torch.Tensor, special: torch.Tensor) -> list[int]:
    end = torch.isin(row, special).nonzero()
    return row[: int(end[0]) if len(end) else len(row)].tolist()
