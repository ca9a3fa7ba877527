"""Chat messages to token ids by a model's own chat template, whatever is in it.

By transformers where it is installed, and else by jinja2, set up as transformers sets it up, and
tokenizers. Both give the same ids. paceline itself renders the templates that it knows; this is for
the others, and for what a template may be told beside.
"""

from __future__ import annotations

import contextlib
import copy
import datetime
import json
import os
import re
import threading
from typing import (
    Any,
    Dict,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    NoReturn,
    Optional,
    Sequence,
    Tuple,
)

from .optional import imported
from .records import PathLike

#: Fields of a row that speak to the template, as well as any in chat_template_kwargs.
TEMPLATE_FIELDS = (
    "enable_thinking",
    "date_string",
    "add_generation_prompt",
    "continue_final_message",
    "tools",
    "chat_template",
)
#: The day that templates are told where nothing else is said. A prompt must be the same tomorrow.
DATE = datetime.date(2024, 7, 26)

#: Of a tokenizer's configuration, what templates may print.
_SPECIAL = tuple(f"{kind}_token" for kind in ("bos", "eos", "unk", "sep", "pad", "cls", "mask"))
#: Arguments that transformers itself takes, and those that are the renderer's.
_OWN = ("messages", "tokenize", "return_dict", "return_tensors", "strftime_now")


class ChatError(Exception):
    """The tokenizer, its template or a row's messages are not what can be rendered."""


def parse_date(text: str) -> datetime.date:
    """2025-01-31 or 31 Jan 2025. Raises ValueError."""
    for form in ("%Y-%m-%d", "%d %b %Y"):
        try:
            return datetime.datetime.strptime(text, form).date()
        except ValueError:
            pass
    raise ValueError(f"expected a date as 2025-01-31 or 31 Jan 2025, found {text!r}")


class Renderer:
    """Renders rows by the tokenizer of a directory.

    `template`: Jinja text instead of the tokenizer's own. `date`: as the user wrote it; what
    templates that ask for today are told. `options`: of all rows that do not say otherwise, as
    chat_template_kwargs has them; continue_final_message is then of those whose last message is
    the assistant's. Raises ChatError, ModuleNotFoundError where packages are missing, and
    ValueError for a date that is none.
    """

    def __init__(
        self,
        directory: PathLike,
        template: Optional[str] = None,
        date: Optional[str] = None,
        options: Optional[Mapping[str, Any]] = None,
    ) -> None:
        self.directory = os.fspath(directory)
        if not os.path.isdir(self.directory):
            raise ChatError(f"{self.directory}: not a directory with a tokenizer")
        day = DATE if date is None else parse_date(date)
        self._options = dict(options or {})
        self._template = template
        self._engine = _engine(self.directory, day)
        if date is not None:
            if "date_string" in self._read_by(None):
                written = day.strftime("%d %b %Y") if date[:4].isdigit() else date.strip()
                self._options.setdefault("date_string", written)
            elif "strftime_now" not in self._read_by(None):
                raise ChatError(f"{self.directory}: the chat template reads no date")
        #: Rows whose last message, the assistant's, was closed though nobody asked for it.
        self.closed = 0

    @property
    def by(self) -> str:
        """What renders, for the user."""
        return self._engine.name

    def encode(self, text: str) -> List[int]:
        """Token ids of text, with the tokenizer's special tokens unless it begins with them."""
        plain = self._engine.encode(text, False)
        full = self._engine.encode(text, True)
        for start in range(len(full) - len(plain) + 1):
            if start > 0 and full[start : start + len(plain)] == plain:
                return plain if plain[:start] == full[:start] else full
        return full

    def render(self, messages: Sequence[Any], row: Mapping[str, Any], padded: bool) -> List[int]:
        """Token ids of a row's messages. `row`: all its fields. `padded`: nulls that are nested in
        them are absent fields (Parquet has every field in every row). Raises ChatError."""
        chat = _conversation(messages, padded)
        options = self._row_options(row, padded)
        generate, go_on = self._ending(options, chat)
        template = options.pop("chat_template", None) or self._template
        tools = options.pop("tools", None) or None
        read = self._read_by(template, tools)
        unread = [name for name in (*options, *(["tools"] if tools else [])) if name not in read]
        if unread:
            raise ChatError(
                f"the chat template does not read {unread[0]!r}: leave it out, or set it to null"
            )
        try:
            return self._engine.render(_Asked(chat, template, tools, generate, go_on, options))
        except (ValueError, TypeError, KeyError, AttributeError, ArithmeticError) as error:
            raise ChatError(f"cannot be rendered: {_first_line(error)}") from error
        except self._engine.template_error as error:
            raise ChatError(f"the chat template says: {_first_line(error)}") from error

    def _read_by(self, template: Optional[str], tools: Any = None) -> "_Names":
        text = template or self._template or self._engine.template(tools)
        return _Names(text)

    def _row_options(self, row: Mapping[str, Any], padded: bool) -> Dict[str, Any]:
        said: Dict[str, Any] = {}
        inner = _json(row.get("chat_template_kwargs"))
        if inner is not None and not isinstance(inner, dict):
            raise ChatError("'chat_template_kwargs': expected an object")
        for source in ({name: row.get(name) for name in TEMPLATE_FIELDS}, inner or {}):
            for name, value in source.items():
                if name in _OWN:
                    raise ChatError(f"{name!r} is not an option of the chat template")
                if name == "tools":
                    value = _tools(value, padded)
                if value is None:
                    continue
                if name in said and said[name] != value:
                    raise ChatError(f"{name!r} is given twice, and differently")
                said[name] = value
        return {**{k: v for k, v in self._options.items() if k not in _ENDING}, **said}

    def _ending(self, options: Dict[str, Any], chat: List[Any]) -> Tuple[bool, Any]:
        """add_generation_prompt and continue_final_message."""
        generate = options.pop("add_generation_prompt", None)
        go_on = options.pop("continue_final_message", None)
        if generate is True and go_on:
            raise ChatError("add_generation_prompt and continue_final_message exclude each other")
        answer = bool(chat) and chat[-1].get("role") == "assistant"
        silent = generate is None and go_on is None
        if go_on is None and generate is not True and answer:
            go_on = self._options.get("continue_final_message")
            self.closed += silent and go_on is None
        if go_on:
            return False, go_on
        if generate is None:
            generate = self._options.get("add_generation_prompt")
        return True if generate is None else bool(generate), False


_ENDING = ("add_generation_prompt", "continue_final_message")


class _Names:
    """The names that a template's text has in it."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __contains__(self, name: object) -> bool:
        return re.search(rf"\b{re.escape(str(name))}\b", self._text) is not None


def _conversation(messages: Sequence[Any], padded: bool) -> List[Any]:
    chat = []
    for number, message in enumerate(messages, 1):
        if not isinstance(message, dict):
            raise ChatError(f"message {number}: expected an object with role and content")
        if not isinstance(message.get("role"), str):
            raise ChatError(f"message {number}: expected a 'role'")
        content = message.get("content")
        if isinstance(content, list):
            for part in content:
                kind = part.get("type", "text") if isinstance(part, dict) else "text"
                if kind != "text":
                    raise ChatError(f"message {number}: {kind!r} is not rendered to token ids")
        # A content of null is what templates look for beside calls of tools.
        kept = {k: v for k, v in message.items() if v is not None or k == "content"}
        chat.append({k: _without_nulls(v) for k, v in kept.items()} if padded else kept)
    if not chat:
        raise ChatError("there are no messages")
    return chat


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _without_nulls(v) for k, v in value.items() if v is not None}
    return [_without_nulls(v) for v in value] if isinstance(value, list) else value


def _json(value: Any) -> Any:
    """What data sets keep as JSON text so that rows may differ in their fields."""
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError as error:
        raise ChatError(f"expected JSON: {error}") from error


def _tools(value: Any, padded: bool) -> Any:
    tools = _json(value)
    if tools is None or tools == []:
        return None
    if not isinstance(tools, list) or not all(isinstance(tool, (dict, str)) for tool in tools):
        raise ChatError("'tools': expected a list of objects")
    tools = [_json(tool) for tool in tools]
    return _without_nulls(tools) if padded else tools


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]


def _engine(directory: str, day: datetime.date) -> "_Engine":
    hint = "pip install transformers jinja2; or jinja2 and tokenizers alone"
    jinja2 = imported("jinja2", "rendering chat templates", hint)
    try:
        transformers = imported("transformers", "", "")
    except ModuleNotFoundError:
        tokenizers = imported("tokenizers", "encoding what a chat template renders", hint)
        return _Jinja(directory, day, jinja2, tokenizers)
    return _Transformers(directory, day, jinja2, transformers)


class _Asked(NamedTuple):
    """What is to be rendered, and how."""

    chat: List[Any]
    template: Optional[str]
    tools: Optional[List[Any]]
    generate: bool
    go_on: Any
    options: Dict[str, Any]


class _Engine:
    """Rendering and encoding by one set of packages."""

    name = ""

    def __init__(self, directory: str, day: datetime.date, jinja2: Any) -> None:
        self.directory = directory
        self.template_error = jinja2.TemplateError
        # The time of day is midnight, for templates that name it.
        self.moment = datetime.datetime.combine(day, datetime.time())

    def template(self, tools: Any) -> str:
        """The tokenizer's own, for use with such tools."""
        raise NotImplementedError

    def encode(self, text: str, special: bool) -> List[int]:
        raise NotImplementedError

    def render(self, asked: "_Asked") -> List[int]:
        raise NotImplementedError


class _Transformers(_Engine):
    def __init__(self, directory: str, day: datetime.date, jinja2: Any, transformers: Any) -> None:
        super().__init__(directory, day, jinja2)
        self.name = f"transformers {transformers.__version__}"
        try:
            self._tokenizer = transformers.AutoTokenizer.from_pretrained(
                directory, local_files_only=True
            )
        except (OSError, ValueError, ImportError, KeyError) as error:
            raise ChatError(f"{directory}: no tokenizer: {_first_line(error)}") from error

    def template(self, tools: Any) -> str:
        try:
            return self._tokenizer.get_chat_template(None, tools)
        except ValueError as error:
            raise ChatError(f"{self.directory}: no chat template ({_first_line(error)})") from error

    def encode(self, text: str, special: bool) -> List[int]:
        return list(self._tokenizer(text, add_special_tokens=special)["input_ids"])

    def render(self, asked: "_Asked") -> List[int]:
        told = _Names(self._tokenizer.get_chat_template(asked.template, asked.tools))
        clock = _clock_of_templates(self.moment)
        with clock if "strftime_now" in told else contextlib.nullcontext():
            return list(
                self._tokenizer.apply_chat_template(
                    asked.chat,
                    tools=asked.tools,
                    chat_template=asked.template,
                    add_generation_prompt=asked.generate,
                    continue_final_message=asked.go_on,
                    tokenize=True,
                    return_dict=False,
                    **asked.options,
                )
            )


#: Held while the clock of transformers is replaced, which all threads see.
_CLOCK = threading.Lock()


@contextlib.contextmanager
def _clock_of_templates(moment: datetime.datetime) -> Iterator[None]:
    """strftime_now, which transformers offers to templates, tells this time. No argument can do so:
    since 5.24 functions among a template's arguments are replaced by texts. A transformers without
    this clock offers no strftime_now."""
    try:
        from transformers.utils import chat_template_utils
    except ImportError:
        chat_template_utils = None
    if not hasattr(chat_template_utils, "datetime"):
        yield
        return

    class Stopped(datetime.datetime):
        @classmethod
        def now(cls, tz: Optional[datetime.tzinfo] = None) -> datetime.datetime:
            return moment

    with _CLOCK:
        clock = chat_template_utils.datetime
        chat_template_utils.datetime = Stopped
        try:
            yield
        finally:
            chat_template_utils.datetime = clock


class _Jinja(_Engine):
    """The conventions of transformers for templates, without it."""

    def __init__(self, directory: str, day: datetime.date, jinja2: Any, tokenizers: Any) -> None:
        super().__init__(directory, day, jinja2)
        self.name = f"jinja2 {jinja2.__version__} and tokenizers {tokenizers.__version__}"
        self._environment = _environment(jinja2, self.moment.strftime)
        self._compiled: Dict[str, Any] = {}
        path = os.path.join(directory, "tokenizer.json")
        if not os.path.exists(path):
            raise ChatError(f"{path}: not there; transformers reads other tokenizers")
        try:
            self._tokenizer = tokenizers.Tokenizer.from_file(path)
        except Exception as error:  # the package raises no type of its own
            raise ChatError(f"{path}: {_first_line(error)}") from error
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        config = self._read("tokenizer_config.json")
        self._templates = self._read_templates(config)
        if "added_tokens_decoder" not in config:
            config = {**config, **self._read("special_tokens_map.json")}
        for index, token in config.get("added_tokens_decoder", {}).items():
            if self._tokenizer.token_to_id(token["content"]) != int(index):
                raise ChatError(
                    f"{directory}: tokenizer_config.json adds {token['content']!r} to what "
                    f"tokenizer.json has; that needs transformers (pip install transformers)"
                )
        self._special = {}
        for name in _SPECIAL:
            token = config.get(name)
            token = token.get("content") if isinstance(token, dict) else token
            if token is not None:
                self._special[name] = token

    def _read(self, name: str) -> Dict[str, Any]:
        path = os.path.join(self.directory, name)
        if not os.path.exists(path):
            return {}
        try:
            with open(path, encoding="utf-8") as file:
                document = json.load(file)
        except (OSError, ValueError) as error:
            raise ChatError(f"{path}: {error}") from error
        if not isinstance(document, dict):
            raise ChatError(f"{path}: expected an object")
        return document

    def _read_templates(self, config: Mapping[str, Any]) -> Dict[str, str]:
        given = config.get("chat_template") or {}
        if isinstance(given, str):
            given = {"default": given}
        elif isinstance(given, list):
            given = {one["name"]: one["template"] for one in given}
        path = os.path.join(self.directory, "chat_template.jinja")
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                given = {"default": file.read()}
            folder = os.path.join(self.directory, "additional_chat_templates")
            for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
                if name.endswith(".jinja"):
                    with open(os.path.join(folder, name), encoding="utf-8") as file:
                        given[name[: -len(".jinja")]] = file.read()
        return given

    def template(self, tools: Any) -> str:
        for name in ("tool_use", "default") if tools else ("default",):
            if name in self._templates:
                return self._templates[name]
        raise ChatError(
            f"{self.directory}: no chat_template in tokenizer_config.json, no chat_template.jinja"
        )

    def encode(self, text: str, special: bool) -> List[int]:
        return self._tokenizer.encode(text, add_special_tokens=special).ids

    def render(self, asked: "_Asked") -> List[int]:
        chat, template, tools, generate, go_on, options = asked
        text = template or self.template(tools)
        names = _Names(text)
        for name in _SPECIAL:
            if name in names and name not in self._special and name not in options:
                raise ChatError(
                    f"{self.directory}: the chat template has {name}, which no file names; "
                    f"transformers may know it (pip install transformers)"
                )
        if text not in self._compiled:
            self._compiled[text] = self._environment.from_string(text)
        chat, field, said = _marked(chat, text, go_on) if go_on else (chat, None, "")
        rendered = self._compiled[text].render(
            messages=chat,
            tools=tools,
            documents=options.pop("documents", None),
            add_generation_prompt=generate,
            **{**self._special, **options},
        )
        return self.encode(_cut(rendered, said) if field else rendered, False)


#: Shows where a message ends in the text, and whether the template trimmed it.
_MARK = "CONTINUE_FINAL_MESSAGE_TAG "


def _marked(chat: List[Any], template: str, go_on: Any) -> Tuple[List[Any], str, str]:
    """The chat with a mark behind its last message, the field that has it, and what that said."""
    field = go_on if isinstance(go_on, str) else "content"
    chat = copy.deepcopy(chat)
    said = chat[-1].get(field)
    if said is None or field not in template:
        raise ValueError(f"the last message has no {field!r} to continue")
    if isinstance(said, list):
        texts = [part for part in said if isinstance(part, dict) and "text" in part]
        if not texts:
            raise ValueError("the last message has no text to continue")
        said = texts[-1]["text"]
        texts[-1]["text"] += _MARK
    else:
        chat[-1][field] = said + _MARK
    return chat, field, said


def _cut(rendered: str, said: str) -> str:
    end = rendered.rfind(_MARK.strip())
    if end < 0 or said.strip() not in rendered:
        raise ValueError("the template leaves out parts of the last message, which is to go on")
    kept = rendered.startswith(_MARK, end)
    return rendered[:end] if kept else rendered[:end].rstrip()


def _environment(jinja2: Any, strftime_now: Any) -> Any:
    from jinja2 import nodes
    from jinja2.ext import Extension, loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """{% generation %} marks what the model said, for trainers; it is a scope."""

        tags = {"generation"}

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return nodes.Scope(body).set_lineno(line)

    def raise_exception(message: str) -> NoReturn:
        raise jinja2.TemplateError(message)

    def tojson(
        value: Any,
        ensure_ascii: bool = False,
        indent: Any = None,
        separators: Any = None,
        sort_keys: bool = False,
    ) -> str:
        return json.dumps(
            value,
            ensure_ascii=ensure_ascii,
            indent=indent,
            separators=separators,
            sort_keys=sort_keys,
        )

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
    )
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = strftime_now
    return environment
