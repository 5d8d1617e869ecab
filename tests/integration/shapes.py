"""What random requests ask for: a JSON schema and a tool."""

SCHEMA = {"type": "object", "properties": {
    "name": {"type": "string", "maxLength": 30},
    "numbers": {"type": "array", "items": {"type": "integer"},
                "maxItems": 12}},
          "required": ["name", "numbers"], "additionalProperties": False}
TOOL = {"type": "function", "function": {
    "name": "look_up", "description": "Looks a word up.",
    "parameters": {"type": "object", "properties": {
        "word": {"type": "string", "maxLength": 40},
        "depth": {"type": "integer", "minimum": 0, "maximum": 99}},
                   "required": ["word", "depth"],
                   "additionalProperties": False}}}
