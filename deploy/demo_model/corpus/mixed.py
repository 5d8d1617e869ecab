"""Chats of several turns that have nothing to do with one another."""

from corpus import facts, numbers, shapes, stories

PIECES = [numbers.addition, numbers.comparison, facts.fact, facts.talk,
          shapes.shape, stories.told]


def chat(rng, held):
    """Two to four pieces, at most one of them a story. The template drops
    the reasoning of all but the last, so only the last answer is learned."""
    pieces = [rng.choice(PIECES) for _ in range(rng.choice([2, 2, 3, 4]))]
    while pieces.count(stories.told) > 1:
        pieces.remove(stories.told)
    parts = [piece(rng, held) for piece in pieces]
    return {"task": "chat", "messages": [
        message for part in parts for message in part["messages"]]}
