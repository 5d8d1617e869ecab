"""Small facts about Sluice, greetings, and what the model says of itself."""

from corpus.words import held_out

FACTS = {
    "Sluice": "Sluice is a cluster that runs one large language model on "
              "several machines and answers over HTTP.",
    "a stage": "A stage is one part of the pipeline: it holds a run of the "
               "model's layers and hands its hidden states to the next stage.",
    "the gateway": "The gateway takes requests over HTTP, plans the steps and "
                   "sends the tokens back to the clients.",
    "an expert host": "An expert host is a process that serves some of the "
                      "experts of a mixture-of-experts model.",
    "a rank": "A rank is one member of a group that shares the work of a "
              "stage.",
    "a step": "A step is one forward pass over one plan.",
    "a plan": "A plan says which tokens of which sequences the next step "
              "computes. It is data and can be replayed.",
    "a sequence": "A sequence is the engine's record of one request.",
    "a token": "A token is a number that stands for a piece of text.",
    "prefill": "Prefill is the part of the work that reads the prompt.",
    "decode": "Decode is the part of the work that makes new tokens, one "
              "after another.",
    "the KV cache": "The KV cache keeps the keys and values of all tokens so "
                    "far, so that they are not computed again.",
    "a block": "A block is a fixed run of tokens in the KV cache.",
    "the journal": "The journal holds the prompt and the tokens of every "
                   "request, so that a lost stage is a pause and not an "
                   "error.",
    "an epoch": "An epoch counts how often the pipeline was built again.",
    "a replica": "A replica is one whole pipeline.",
    "the scheduler": "The scheduler decides which sequences run in the next "
                     "step.",
    "the sampler": "The sampler turns logits into the next token.",
    "the tokenizer": "The tokenizer turns text into tokens and back.",
    "a mixture of experts": "A mixture of experts is a model whose router "
                            "sends every token to a few of many small "
                            "networks.",
    "the router": "The router picks the two experts that a token goes to.",
    "the shared expert": "The shared expert is the one that every token goes "
                         "to.",
    "readiness": "Readiness is progress: a cluster is ready if a token went "
                 "through every stage lately.",
    "backpressure": "Backpressure means that a full queue refuses new work "
                    "instead of growing.",
}
ASKS = ["What is {}?", "What is {} in Sluice?", "Please explain {}.",
        "Can you tell me what {} is?", "Explain {} in a few words.",
        "I do not know what {} is.", "Tell me about {}.",
        "{}: what does that mean?", "Do you know {}?", "Define {}."]
TALK = [
    (["Hello", "Hello!", "Hi", "Hi!", "Good morning!", "Hey", "Good evening!"],
     "Hello! Ask me for a story, a sum, or a fact about Sluice."),
    (["Who are you?", "What are you?", "What is your name?",
      "Which model are you?", "Are you a language model?"],
     "I am the demo model of Sluice, a very small mixture of experts."),
    (["What can you do?", "How can you help me?", "Help", "What do you know?"],
     "I can tell stories, answer questions about them, add numbers, call "
     "tools and answer as JSON."),
    (["Thank you.", "Thanks!", "Thank you!", "Thanks a lot.", "Great!"],
     "You are welcome."),
    (["Goodbye!", "Bye!", "See you.", "Good night!", "Bye"],
     "Goodbye! Come back soon."),
]


def fact(rng, held):
    """A question about Sluice; each pair of subject and wording is in one of
    the two parts. Wordings vary in their opening, so that few are equal."""
    while True:
        subject, wording = rng.choice(list(FACTS)), rng.choice(ASKS)
        if held_out("fact", subject, wording) == held:
            break
    asked = wording.format(subject)
    asked = rng.choice(["", "", "Hello! ", "One question: ", "Please help. ",
                        "I am new here. ", "Hi. "]) + asked
    return {"task": "fact", "messages": [
        {"role": "user", "content": asked[0].upper() + asked[1:]},
        {"role": "assistant", "content": FACTS[subject]}], "repeats": True}


def talk(rng, held):
    """Small talk: too little to hold any of it out."""
    del held
    asked, answer = rng.choice(TALK)
    return {"task": "talk", "messages": [
        {"role": "user", "content": rng.choice(asked)},
        {"role": "assistant", "content": answer}], "repeats": True}
