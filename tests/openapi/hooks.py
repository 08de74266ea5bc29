"""Hooks of schemathesis: what a schema cannot say about a valid request, and requests that reach stored items.

Only requests that are meant to be valid are changed. A cursor, a position, the path of an item and the id that
a reference names have to exist; the value of a decimal or a date may have bounds that JSON Schema has no words
for; NDJSON, CSV and JSON Patch are sent as their examples. Requests that are meant to be invalid go out as they
are.
"""

import json
import random
import re
import uuid

import schemathesis

# The paths of created items, by the template of their collection.
LOCATIONS = {}
CHANCE = random.Random(20261115)
TEXT_ONLY = {"application/x-ndjson", "text/csv", "application/json-patch+json"}
# Only an event stream takes these; nobody knows a valid value of the others beforehand.
CONTROLS = {"limit", "cursor", "sort", "fields", "count"}
FILTERS_MAX = 20
UNKNOWABLE = {"cursor", "since", "snapshot", "subject", "wait"}


def is_positive(case):
    return case.meta is None or case.meta.generation.mode.is_positive


def resolve(document, node):
    while isinstance(node, dict) and "$ref" in node:
        target = document
        for part in node["$ref"][2:].split("/"):
            target = target[part.replace("~1", "/").replace("~0", "~")]
        node = target
    return node


def known_path(template):
    """The path of a stored item, or of an item above the collection."""
    item = template if template.endswith("}") else template.rsplit("/", 1)[0]
    return CHANCE.choice(LOCATIONS.get(item) or [None])


def path_values(template, path):
    pattern = re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", template)
    found = re.fullmatch(pattern, path)
    return found.groupdict() if found else None


def stored_id(label):
    for template, paths in LOCATIONS.items():
        if template.endswith("{%s_id}" % label.split("/")[-1]) and paths:
            last = CHANCE.choice(paths).rsplit("/", 1)[-1]
            return int(last) if last.isdigit() else last
    return None


def needs_example(schema):
    about = schema.get("description", "")
    return (
        schema.get("format") in ("decimal", "uri")
        or "At least" in about
        or "At most" in about
        or "From " in about
        or "regular expression" in about
    )


def repair(document, schema, value, example, is_element=False):
    """Makes a value valid where its schema cannot say what is; returns it, or None to leave it out."""
    schema = resolve(document, schema)
    if value is None:
        return value
    if "x-resource" in schema:
        return stored_id(schema["x-resource"])
    if isinstance(value, dict) and "properties" in schema:
        for name in list(value):
            inner = schema["properties"].get(name)
            if inner is None:
                continue
            inner = resolve(document, inner)
            had = value[name] is not None
            sample = example.get(name) if isinstance(example, dict) else None
            value[name] = repair(document, inner, value[name], sample, is_element)
            if had and value[name] is None and name not in schema.get("required", []):
                del value[name]
        return value
    if isinstance(value, list) and "items" in schema:
        sample = example[0] if isinstance(example, list) and example else None
        return [repair(document, schema["items"], one, sample, is_element=True) for one in value]
    if is_element and schema.get("type") == "integer" and isinstance(value, (int, float)):
        # A computed field may be a sum of products, which must not overflow.
        return min(value, max(10**6, schema["minimum"]))
    if needs_example(schema) and "enum" not in schema:
        return example
    if schema.get("type") == ["array", "boolean", "number", "object", "string"] or (
        isinstance(schema.get("type"), list) and len(schema["type"]) > 3
    ):
        return exact(value)
    if isinstance(value, int) and not isinstance(value, bool) and "number" in str(schema.get("type")):
        return exact(value)
    return value


def exact(value):
    """JSON whose numbers a double holds without loss."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    if isinstance(value, int):
        return value if abs(value) < 2**53 else 1
    if isinstance(value, list):
        return [exact(one) for one in value]
    if isinstance(value, dict):
        return {name: exact(one) for name, one in value.items()}
    return value


def body_schema(document, case):
    operation = document["paths"][case.operation.path][case.operation.method.lower()]
    return operation["requestBody"]["content"].get(case.media_type)


def schema_of_wrapper(document, schema, key):
    return resolve(document, schema)["properties"].get(key, {})


def first_example(document, schema):
    return (resolve(document, schema).get("examples") or [None])[0]


def repair_body(document, case):
    media = body_schema(document, case)
    if media is None or not isinstance(case.body, (dict, list, str)):
        return
    if case.media_type in TEXT_ONLY:
        if "example" in media:
            case.body = json.loads(json.dumps(media["example"]))
        return
    for key in list(case.body):
        inner = schema_of_wrapper(document, media["schema"], key)
        element = inner.get("items", inner)
        example = first_example(document, element)
        create = document["components"]["schemas"].get(element.get("$ref", "").split("/")[-1].rsplit(".", 1)[0] + ".create")
        example = dict((first_example(document, create) if create else None) or {}, **(example or {}))
        values = case.body[key] if isinstance(case.body[key], list) else [case.body[key]]
        for item in values:
            if isinstance(item, dict):
                if case.operation.method.lower() == "patch":
                    # A part of an object is merged with the stored one, which may not be there.
                    for name in [name for name, value in item.items() if isinstance(value, dict)]:
                        del item[name]
                repair(document, element, item, example)


@schemathesis.serializer("application/x-ndjson")
def send_lines(context, value):
    # What is not a text is meant to be invalid, and no line is a list.
    return value if isinstance(value, (str, bytes)) else json.dumps([value])


def repair_query(document, case):
    query = case.query
    operation = document["paths"][case.operation.path][case.operation.method.lower()]
    schemas = {one["name"]: one["schema"] for one in (resolve(document, p) for p in operation["parameters"])}
    # The values of `in` are one text, if they may have commas.
    urls = {name + ":in" for name, schema in schemas.items() if schema.get("format") == "uri"}
    for name in [name for name in query if name in UNKNOWABLE | urls]:
        del query[name]
    for name in [name for name in query if schemas.get(name, {}).get("format") == "uri"]:
        query[name] = "https://example.com/"
    if "version" in query:
        query.pop("as_of", None)
    # A list takes a limited number of filters.
    filters = [name for name in query if name not in CONTROLS]
    for name in CHANCE.sample(filters, max(0, len(filters) - FILTERS_MAX)):
        del query[name]
    expand = query.get("expand")
    if expand:
        # The options of children are a query of their own.
        paths = expand if isinstance(expand, list) else [expand]
        query["expand"] = list(dict.fromkeys(re.sub(r"\(.*\)", "", path) for path in paths))
    sort = query.get("sort")
    if sort:
        fields = {}
        for key in sort if isinstance(sort, list) else sort.split(","):
            fields.setdefault(key.lstrip("-"), key)
        query["sort"] = list(fields.values()) if isinstance(sort, list) else ",".join(fields.values())


def repair_user(case):
    """The rules of names are not those of a regular expression, and a name cannot be changed."""
    for key in ("user", "users"):
        values = case.body.get(key) if isinstance(case.body, dict) else None
        # Hashing the passwords of a thousand users takes longer than a request may.
        if isinstance(values, list):
            del values[3:]
        for user in values if isinstance(values, list) else [values]:
            if isinstance(user, dict) and "name" in user:
                user["name"] = f"user {CHANCE.getrandbits(64):x}"


def repair_webhook(document, case):
    """Events and filters name parts of the model, and the tests tell nobody."""
    media = body_schema(document, case)
    if media and "example" in media and case.media_type not in TEXT_ONLY:
        case.body = json.loads(json.dumps(media["example"]))
        case.body["webhook"]["enabled"] = False
    if isinstance(case.body, str):
        case.body = case.body.replace("true", "false")


def spoil_single_item(document, case):
    """The plural with a single item, which no schema describes, is accepted too: this one is not meant to be."""
    if case.operation.method.upper() != "POST" or case.media_type != "application/json":
        return
    body = case.body
    if isinstance(body, dict) and len(body) == 1 and isinstance(next(iter(body.values())), dict):
        media = body_schema(document, case)
        if "items" in schema_of_wrapper(document, media["schema"], next(iter(body))):
            case.body = {next(iter(body)): [0]}


@schemathesis.hook
def before_call(context, case, kwargs):
    document = case.operation.schema.raw_schema
    template = case.operation.path
    if not is_positive(case):
        spoil_single_item(document, case)
        return
    if case.path_parameters and CHANCE.random() < 0.8:
        path = known_path(template)
        values = path and path_values(template if template.endswith("}") else template.rsplit("/", 1)[0], path)
        if values and not template.startswith("/-/"):
            case.path_parameters.update(values)
    if case.operation.method.lower() in ("put", "patch") and template.startswith("/-/"):
        # The name of a user cannot be changed, and the secret of a webhook needs a key.
        for name in case.path_parameters or {}:
            case.path_parameters[name] = str(uuid.UUID(int=CHANCE.getrandbits(128)))
    if case.query:
        repair_query(document, case)
    if case.headers:
        for name in [name for name in case.headers if name.lower() == "idempotency-key"]:
            case.headers[name] = str(uuid.UUID(int=CHANCE.getrandbits(128)))
            # An open server without a key file takes none where passwords are sent.
            if template.startswith("/-/"):
                del case.headers[name]
    if case.body is not None and case.media_type:
        repair_body(document, case)
        if template.startswith("/-/users"):
            repair_user(case)
        if template.startswith("/-/webhooks"):
            repair_webhook(document, case)


@schemathesis.hook
def after_call(context, case, response):
    location = response.headers.get("location")
    if response.status_code == 201 and location:
        path = location[0] if isinstance(location, list) else location
        base = (case.operation.schema.raw_schema["servers"][0]["url"]).rstrip("/")
        template = item_template(case)
        if template:
            LOCATIONS.setdefault(template, []).append(path.removeprefix(base))
            del LOCATIONS[template][:-50]


    if response.status_code == 204 and case.operation.method.lower() == "delete":
        gone = re.sub(r"\{(\w+)\}", lambda found: str(case.path_parameters[found[1]]), case.operation.path)
        for paths in LOCATIONS.values():
            paths[:] = [path for path in paths if path != gone and not path.startswith(gone + "/")]


def item_template(case):
    start = case.operation.path + "/{"
    for path in case.operation.schema.raw_schema["paths"]:
        if path.startswith(start) and path.count("/") == start.count("/"):
            return path
    return None
