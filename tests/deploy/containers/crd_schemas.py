"""JSON schemas, strict ones, of custom resources' definitions."""

import json

import manifests


def strict(schema):
    """The schema, refusing fields that it does not name."""
    if isinstance(schema, list):
        return [strict(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: strict(value) for key, value in schema.items()}
    if (isinstance(made.get("properties"), dict)
            and "type" in made
            and "additionalProperties" not in made
            and not made.get("x-kubernetes-preserve-unknown-fields")):
        made["additionalProperties"] = False
    if made.pop("x-kubernetes-int-or-string", False):
        made.pop("type", None)
        made["anyOf"] = [{"type": "integer"}, {"type": "string"}]
    return made


def write(definitions, folder):
    """Writes GROUP_KIND_VERSION.json of each file of `definitions`; returns the
    kinds."""
    kinds = set()
    for path in definitions:
        for crd in manifests.objects(path.read_text()):
            names, group = crd["spec"]["names"], crd["spec"]["group"]
            kinds.add(names["kind"])
            for version in crd["spec"]["versions"]:
                schema = strict(version["schema"]["openAPIV3Schema"])
                schema["properties"]["metadata"] = {"type": "object"}
                name = f"{group}_{names['kind'].lower()}_{version['name']}.json"
                (folder / name).write_text(json.dumps(schema))
    return kinds
