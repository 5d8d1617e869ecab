"""Chats that are answered by copying from the prompt: words said again, and
what was just told of a made-up name. Calls of tools and JSON answers rest on
the same skill, which is learned soonest where nothing else is asked."""

from corpus import words

REPEAT = ["Repeat after me: {}", "Say this again: {}", "Copy this text: {}",
          'Please repeat "{}".', "Repeat: {}"]
NOTE = ["Note this. {}", "Remember: {}", "Here is a list. {}", "{}"]
ASK = ["What is {}?", "Tell me what {} is.", "And what is {}?"]
TOLD = ["{} is {}.", "{}: {}.", "{} = {}."]


def _word(rng):
    """A word or a few; a third of them were never anybody's."""
    return rng.choice([
        lambda: words.syllables(rng), lambda: words.syllables(rng),
        lambda: words.syllables(rng) + "_" + rng.choice(words.NOUNS),
        lambda: str(rng.randrange(1000)), lambda: rng.choice(words.NAMES),
        lambda: rng.choice(words.CITIES), lambda: rng.choice(words.NOUNS),
        lambda: rng.choice(words.THINGS), lambda: rng.choice(words.PHRASES),
    ])()


def repeat(rng, held):
    """Two to eight pieces, said again."""
    while True:
        text = " ".join(_word(rng) for _ in range(rng.randrange(2, 9)))
        if words.held_out("repeat", text) == held:
            break
    return {"messages": [
        {"role": "user", "content": rng.choice(REPEAT).format(text)},
        {"role": "assistant", "content": text}]}


def recall(rng, held):
    """Two to five made-up names and what each is; one or two are asked."""
    while True:
        told = {words.syllables(rng): _word(rng)
                for _ in range(rng.randrange(2, 6))}
        if words.held_out("recall", *told) == held:
            break
    form = rng.choice(TOLD)
    note = rng.choice(NOTE).format(
        " ".join(form.format(*pair) for pair in told.items()))
    messages = []
    asked = min(rng.choice([1, 2, 2]), len(told))
    for name in rng.sample(list(told), asked):
        messages += [
            {"role": "user", "content": (note + " " if not messages else "")
             + rng.choice(ASK).format(name)},
            {"role": "assistant", "content": f"{name} is {told[name]}."}]
    return {"messages": messages}
