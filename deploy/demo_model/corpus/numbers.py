"""Addition and comparison of numbers below 100, with the steps thought."""

from corpus.words import held_out

ADD = ["What is {} + {}?", "{} + {} = ?", "Add {} and {}.",
       "Please compute {} + {}.", "How much is {} plus {}?",
       "Calculate {} + {}.", "{} plus {}?", "What do {} and {} make together?"]
LARGER = ["Which is larger, {} or {}?", "Which number is larger: {} or {}?",
          "Compare {} and {}. Which is larger?"]
SMALLER = ["Which is smaller, {} or {}?", "Which number is smaller: {} or {}?",
           "Compare {} and {}. Which is smaller?"]


def add_steps(a, b):
    """Adding as it is done on paper, from the ones to the tens."""
    ones = a % 10 + b % 10
    if a < 10 and b < 10:
        return f"{a} + {b} = {ones}."
    text = f"{a % 10} + {b % 10} = {ones}, write {ones % 10}"
    carry = ones // 10
    text += f", carry {carry}. " if carry else ". "
    tens = a // 10 + b // 10 + carry
    text += f"{a // 10} + {b // 10}" + (f" + {carry}" if carry else "")
    return text + f" = {tens}. So {a + b}."


def compare_steps(a, b, larger):
    word = "larger" if larger else "smaller"
    pick = max if larger else min
    tens, ones = (a // 10, b // 10), (a % 10, b % 10)
    text = f"Tens: {tens[0]} and {tens[1]}"
    if tens[0] != tens[1]:
        return text + f". {pick(tens)} is {word}."
    text += f", the same. Ones: {ones[0]} and {ones[1]}"
    if ones[0] != ones[1]:
        return text + f". {pick(ones)} is {word}."
    return text + ", the same."


def _pair(rng, held, key):
    while True:
        low = 10 if rng.random() < 0.8 else 0
        a, b = rng.randrange(low, 100), rng.randrange(low, 100)
        if held_out(key, a, b) == held:
            return a, b


def addition(rng, held):
    a, b = _pair(rng, held, "add")
    return {"task": "addition", "messages": [
        {"role": "user", "content": rng.choice(ADD).format(a, b)},
        {"role": "assistant", "reasoning_content": add_steps(a, b),
         "content": f"{a} + {b} = {a + b}."}]}


def comparison(rng, held):
    a, b = _pair(rng, held, "compare")
    if rng.random() < 0.3:
        b = a // 10 * 10 + b % 10  # the tens alike: the ones decide
        if held_out("compare", a, b) != held:
            return comparison(rng, held)
    larger = rng.random() < 0.5
    one, other = (max(a, b), min(a, b)) if larger else (min(a, b), max(a, b))
    answer = f"{one} is {'larger' if larger else 'smaller'} than {other}."
    if a == b:
        answer = f"{a} and {b} are equal."
    return {"task": "comparison", "messages": [
        {"role": "user",
         "content": rng.choice(LARGER if larger else SMALLER).format(a, b)},
        {"role": "assistant", "reasoning_content": compare_steps(a, b, larger),
         "content": answer}]}
