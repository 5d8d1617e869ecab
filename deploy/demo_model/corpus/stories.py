"""Short stories from a grammar, and questions about what they told."""

from corpus import words
from corpus.words import article

OPENINGS = [
    "One {time}, {mood} {animal} named {hero} went to the {place}.",
    "It was a quiet {time} when {hero}, {mood} {animal}, came to the {place}.",
    "Once there was {mood} {animal} named {hero}. One {time}, {p} walked to "
    "the {place}.",
    "{hero} was {mood} {animal}. One {time}, {p} set out for the {place}.",
    "Early one {time}, {hero} the {animal} left home and went to the {place}.",
]
WANTS = [
    "{P} was looking for {thing}, because {reason}.",
    "{hero} hoped to find {thing}, for {reason}.",
    "There {p} began to search for {thing}, because {reason}.",
    "{P} needed {thing}, because {reason}.",
]
SEARCHES = [
    "{P} looked everywhere, but found nothing.",
    "For an hour {p} searched in vain.",
    "{P} asked a sailor, a cook and an old owl, but nobody knew.",
    "Soon {p} was cold and a little sad.",
    "{P} counted {q} steps and did not give up.",
]
MEETINGS = [
    "Then {p} met {friend}, {mood2} {animal2}.",
    "On the way {p} met {mood2} {animal2} named {friend}.",
    "Just then {friend}, {mood2} {animal2}, came along.",
    "A voice called out. It was {friend}, {mood2} {animal2}.",
]
SPEECH = [
    '"Let us look together," said {friend}.',
    '"Do not worry, I will help you," said {friend}.',
    '"I know this place well," {friend} said. "Follow me."',
    '"Two see more than one," {friend} said with a smile.',
]
FINDS = [
    "Together they found the {noun} {spot}.",
    "At last they saw the {noun} {spot}.",
    "And there it was: the {noun} lay {spot}.",
    "After a while {friend} found the {noun} {spot}.",
]
THANKS = [
    "To say thank you, {hero} gave {friend} {count} {food}.",
    "{hero} was so happy that {p} gave {friend} {count} {food}.",
    "{hero} thanked {friend} with {count} {food}.",
]
ENDINGS = [
    "From that day on they were friends.",
    "They laughed and went home together.",
    "That night {hero} slept very well.",
    "And whenever it rained, they told this story again.",
    "{hero} never forgot that {time}.",
    "Then the two of them watched the stars come out.",
]

ASKS = ["Tell me a story about {}.", "Please tell a story about {}.",
        "Write a short story about {}.", "I would like a story about {}.",
        "Can you tell me a story about {}?"]
READS = ["Read this story and answer.\n\n{}\n\n{}",
         "{}\n\n{}", "Here is a story: {}\n\nQuestion: {}",
         "Story: {}\n\nPlease answer: {}"]

# kind of question -> its wordings, its answer
QUESTIONS = {
    "animal": (["What kind of animal is {hero}?", "What animal was {hero}?"],
               "{hero} is {an_animal}."),
    "place": (["Where did {hero} go?", "To which place did {hero} go?"],
              "{hero} went to the {place}."),
    "thing": (["What was {hero} looking for?", "What did {hero} want?"],
              "{hero} was looking for {thing}."),
    "color": (["What color was the {noun}?", "Which color had the {noun}?"],
              "The {noun} was {color}."),
    "friend": (["Whom did {hero} meet?", "Who helped {hero}?"],
               "{hero} met {friend}."),
    "animal2": (["What kind of animal is {friend}?",
                 "What animal was {friend}?"],
                "{friend} is {an_animal2}."),
    "spot": (["Where was the {noun}?", "Where did they find the {noun}?"],
             "The {noun} was {spot}."),
    "count": (["How many {food} did {friend} get?",
               "What did {hero} give to {friend}?"],
              "{friend} got {count} {food}."),
    "time": (["When did this happen?", "When does the story begin?"],
             "It was one {time}."),
}


def draw(rng, held):
    """The story's facts; its hero, animal and thing decide its part."""
    while True:
        hero, friend = rng.sample(words.NAMES, 2)
        animal, animal2 = rng.sample(words.ANIMALS, 2)
        noun = rng.choice(words.THINGS)
        if words.held_out("story", hero, animal, noun) == held:
            break
    pronoun = words.PRONOUN[hero]
    possessive = {"she": "her", "he": "his"}[pronoun]
    color = rng.choice(words.COLORS)
    return {
        "hero": hero, "friend": friend, "animal": animal, "animal2": animal2,
        "an_animal": article(animal), "an_animal2": article(animal2),
        "noun": noun, "color": color, "thing": article(color + " " + noun),
        "p": pronoun, "P": pronoun.capitalize(), "q": possessive,
        "mood": article(rng.choice(words.MOODS)),
        "mood2": article(rng.choice(words.MOODS)),
        "time": rng.choice(words.TIMES), "place": rng.choice(words.PLACES),
        "spot": rng.choice(words.SPOTS), "food": rng.choice(words.FOODS),
        "count": rng.choice(words.COUNTS),
        "reason": rng.choice(words.REASONS).format(p=pronoun, q=possessive),
    }


def tell(rng, facts):
    """The story as text, and which kinds of question it can answer."""
    parts = [rng.choice(OPENINGS)]
    if rng.random() < 0.4:
        parts.append(rng.choice(words.WEATHERS) + ".")
    parts.append(rng.choice(WANTS))
    if rng.random() < 0.7:
        parts.append(rng.choice(SEARCHES))
    parts.append(rng.choice(MEETINGS))
    if rng.random() < 0.6:
        parts.append(rng.choice(SPEECH))
    parts.append(rng.choice(FINDS))
    kinds = list(QUESTIONS)
    if rng.random() < 0.8:
        parts.append(rng.choice(THANKS))
    else:
        kinds.remove("count")
    parts.append(rng.choice(ENDINGS))
    return " ".join(part.format(**facts) for part in parts), kinds


def question(rng, facts, kind):
    wordings, answer = QUESTIONS[kind]
    return rng.choice(wordings).format(**facts), answer.format(**facts)


def _subject(rng, facts):
    """What the user asks a story about; says more or less of it."""
    subject = facts["an_animal"]
    if rng.random() < 0.5:
        subject += " named {hero}".format(**facts)
    if rng.random() < 0.4:
        subject += " and {thing}".format(**facts)
    if rng.random() < 0.2:
        subject += " at the {place}".format(**facts)
    return subject


def told(rng, held):
    """A chat: a story is asked for, told, and asked about."""
    facts = draw(rng, held)
    story, kinds = tell(rng, facts)
    ask = rng.choice(ASKS).format(_subject(rng, facts))
    messages = [{"role": "user", "content": ask},
                {"role": "assistant", "content": story}]
    for kind in rng.sample(kinds, rng.choice([0, 1, 2, 3])):
        asked, answer = question(rng, facts, kind)
        messages += [{"role": "user", "content": asked},
                     {"role": "assistant", "content": answer}]
    return {"task": "story", "messages": messages, "near": story}


def read(rng, held):
    """A chat: the user gives the story and asks about it."""
    facts = draw(rng, held)
    story, kinds = tell(rng, facts)
    first, *others = rng.sample(kinds, rng.choice([1, 2, 3, 4]))
    asked, answer = question(rng, facts, first)
    messages = [
        {"role": "user", "content": rng.choice(READS).format(story, asked)},
        {"role": "assistant", "content": answer}]
    for kind in others:
        asked, answer = question(rng, facts, kind)
        messages += [{"role": "user", "content": asked},
                     {"role": "assistant", "content": answer}]
    return {"task": "story_question", "messages": messages, "near": story}
