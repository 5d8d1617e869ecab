"""Word lists of the grammar, and the rule that splits held-out from train."""

import zlib

# Heroes and friends, with their pronouns.
SHE = ["Mira", "Lena", "Nora", "Ida", "Tilda", "Wanda", "Elsa", "Ruth",
       "Paula", "Greta", "Iris", "Olga", "Vera", "Dora", "Hanna", "Zoe"]
HE = ["Bruno", "Otto", "Felix", "Emil", "Hugo", "Karl", "Leo", "Max",
      "Anton", "Oskar", "Jonas", "Theo", "Victor", "Paul", "Ben", "Tom"]
PRONOUN = {**{name: "she" for name in SHE}, **{name: "he" for name in HE}}
NAMES = SHE + HE

ANIMALS = ["fox", "bear", "rabbit", "mouse", "goose", "cat", "dog", "frog",
           "hedgehog", "badger", "squirrel", "crow", "deer", "horse", "goat",
           "turtle"]
MOODS = ["brave", "shy", "clever", "cheerful", "tired", "curious", "gentle",
         "proud", "sleepy", "careful", "funny", "patient"]
TIMES = ["morning", "evening", "night", "afternoon", "winter day",
         "summer day", "autumn day", "spring day"]
PLACES = ["forest", "harbor", "market", "mill", "castle", "village", "lake",
          "garden", "mountain", "library", "station", "island", "farm",
          "bridge", "lighthouse", "bakery"]
COLORS = ["red", "blue", "green", "yellow", "white", "black", "silver",
          "golden", "brown", "purple"]
THINGS = ["key", "lamp", "book", "hat", "drum", "bell", "kite", "map",
          "ring", "coat", "cup", "letter", "basket", "flute", "clock",
          "shell", "boat", "scarf", "coin", "ladder"]
SPOTS = ["under an old bench", "behind a wooden door", "inside a hollow tree",
         "beside a quiet well", "under a flat stone", "behind the tall reeds",
         "inside a broken barrel", "between two rocks", "under the stairs",
         "inside a blue box", "behind the oven", "beside the old wall"]
FOODS = ["apples", "pears", "cookies", "cakes", "berries", "nuts", "plums",
         "carrots", "rolls", "pies"]
COUNTS = ["two", "three", "four", "five", "six", "seven", "eight", "nine"]
WEATHERS = ["The wind was cold", "The sun was warm", "Rain was falling",
            "Snow lay on the ground", "Fog hung in the air",
            "The sky was clear"]
REASONS = ["{p} had lost it the day before",
           "{p} wanted to give it to a friend",
           "it had belonged to {q} grandmother",
           "{p} had promised to bring it back",
           "{p} had dreamed of it all week"]

CITIES = ["Oslo", "Paris", "Berlin", "Rome", "Madrid", "Vienna", "Lisbon",
          "Prague", "London", "Dublin", "Athens", "Cairo", "Tokyo", "Lima",
          "Delhi", "Boston", "Chicago", "Toronto", "Sydney", "Bern", "Riga",
          "Seoul", "Quito", "Nairobi"]
JOBS = ["baker", "teacher", "doctor", "farmer", "painter", "pilot", "nurse",
        "cook", "gardener", "singer", "writer", "sailor"]
PETS = ["cat", "dog", "bird", "fish", "horse", "rabbit"]
LANGUAGES = ["French", "German", "Spanish", "Italian", "Polish", "Greek",
             "Dutch", "Danish"]
PHRASES = ["good morning", "thank you", "see you soon", "how are you",
           "the soup is hot", "where is the station", "I like tea",
           "the train is late", "we need more bread", "the door is open",
           "dinner is ready", "the meeting starts at noon",
           "the boat leaves tonight", "call me tomorrow",
           "the keys are on the table", "the garden is full of snow"]
TOPICS = ["lighthouses", "bridges", "steam engines", "owls", "bees",
          "glaciers", "volcanoes", "clocks", "tea", "chess", "maps", "comets",
          "paper", "windmills", "pianos", "whales"]
ASPECTS = ["the history of {}", "facts about {}", "pictures of {}",
           "books about {}", "the origin of {}", "news about {}",
           "how {} work", "the best {}"]

# Parts of the names of tools that were never anybody's.
VERBS = ["get", "find", "run", "ask", "fetch", "make", "show", "do", "call",
         "read", "use", "open", "send", "give", "look", "start"]
NOUNS = ["report", "helper", "service", "desk", "box", "agent", "result",
         "item", "value", "data", "task", "action", "job", "hand", "point",
         "line"]
ONSETS = ["b", "d", "f", "g", "k", "l", "m", "n", "p", "r", "s", "t", "v",
          "z", "br", "tr", "st", "pl"]
VOWELS = ["a", "e", "i", "o", "u"]
CODAS = ["", "", "n", "r", "l", "s", "t", "x"]


def syllables(rng):
    """A word that was never anybody's."""
    return "".join(rng.choice(ONSETS) + rng.choice(VOWELS) + rng.choice(CODAS)
                   for _ in range(rng.choice([2, 2, 3])))


def held_out(*key):
    """Whether what this key names belongs to the held-out tenth. The train
    part rejects such keys and the held-out part all others, so that the two
    are disjoint by construction."""
    text = "|".join(str(part) for part in key)
    return zlib.crc32(text.encode()) % 10 == 0


def article(word):
    return ("an " if word[0] in "aeiou" else "a ") + word


def join_words(words):
    """a / a and b / a, b and c."""
    if len(words) < 2:
        return "".join(words)
    return ", ".join(words[:-1]) + " and " + words[-1]
