"""LangChain: a prompt, the model and a parser as one chain.

pip install langchain-openai
"""

import os

from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_openai import ChatOpenAI

model = ChatOpenAI(
    base_url=os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:8080/v1"),
    api_key=os.environ.get("OPENAI_API_KEY", "none"),
    model=os.environ.get("SLUICE_MODEL", "sluice"),
    temperature=0, max_tokens=24,
    # A queued request is answered late rather than asked twice.
    timeout=600, max_retries=0)
prompt = ChatPromptTemplate.from_messages(
    [("user", "Name the capital of {country}.")])
chain = prompt | model | StrOutputParser()

for text in chain.stream({"country": "France"}):
    print(text, end="", flush=True)
print()
