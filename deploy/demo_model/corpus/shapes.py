"""Answers as JSON of a given shape, about what the user has just told."""

import json

from corpus import words

ASKS = ["Answer as JSON with the keys {}.", "Give me JSON with {}.",
        "Write this as a JSON object with the keys {}.",
        "Reply only with JSON. Keys: {}."]
SHAPES = ["Answer as JSON like {}.", "Reply only with JSON of the shape {}.",
          "Fill in this shape: {}."]
TYPE = {str: "string", int: "number", bool: "boolean", list: "array"}


def _person(rng):
    name = rng.choice(words.NAMES)
    he = words.PRONOUN[name].capitalize()
    age, city = rng.randrange(5, 96), rng.choice(words.CITIES)
    job, pet = rng.choice(words.JOBS), rng.choice(words.PETS)
    likes, married = rng.sample(words.FOODS, 2), rng.random() < 0.5
    told = {
        "age": (age, f"{{}} is {age} years old."),
        "city": (city, f"{{}} lives in {city}."),
        "job": (job, f"{{}} works as {words.article(job)}."),
        "pet": (pet, f"{{}} has {words.article(pet)}."),
        "likes": (likes, f"{{}} likes {likes[0]} and {likes[1]}."),
        "married": (married, "{} is " + ("" if married else "not ")
                    + "married."),
    }
    return ("name", name), told, name, he, (name, age, city)


def _parcel(rng):
    noun, color = rng.choice(words.THINGS), rng.choice(words.COLORS)
    count, price = rng.randrange(2, 60), rng.randrange(1, 100)
    buyer, city = rng.choice(words.NAMES), rng.choice(words.CITIES)
    paid = rng.random() < 0.5
    told = {
        "count": (count, f"{{}} counts {count} pieces."),
        "price": (price, f"{{}} costs {price} coins."),
        "color": (color, f"{{}} is {color}."),
        "buyer": (buyer, f"{{}} is for {buyer}."),
        "city": (city, f"{{}} goes to {city}."),
        "paid": (paid, "{} is " + ("" if paid else "not yet ") + "paid."),
    }
    return (("item", noun), told, f"The order of the {noun}", "It",
            (noun, count, price, buyer))


def shape(rng, held):
    """Who or what decides the part. The keys asked for are some of what was
    told, in the order in which they were asked."""
    while True:
        first, told, subject, pronoun, key = rng.choice([_person, _parcel])(rng)
        if words.held_out("json", *key) == held:
            break
    kinds = rng.sample(list(told), rng.choice([2, 3, 3, 4]))
    text = " ".join(told[kind][1].format(pronoun if at else subject)
                    for at, kind in enumerate(kinds))
    wanted = rng.sample(kinds, rng.randrange(1, len(kinds) + 1))
    if rng.random() < 0.8:
        wanted.insert(rng.randrange(len(wanted) + 1), first[0])
    values = {first[0]: first[1], **{k: told[k][0] for k in kinds}}
    answer = {key: values[key] for key in wanted}
    if rng.random() < 0.5:
        ask = rng.choice(ASKS).format(words.join_words(wanted))
    else:
        types = {key: TYPE[type(answer[key])] for key in wanted}
        ask = rng.choice(SHAPES).format(json.dumps(types))
    content = f"{text} {ask}" if rng.random() < 0.5 else f"{ask}\n{text}"
    return {"task": "json", "messages": [
        {"role": "user", "content": content},
        {"role": "assistant", "content": json.dumps(answer)}]}
