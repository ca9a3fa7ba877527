"""Write fixtures/tools.json: chat templates with their branches for tools, lists of tools, and what
`transformers` renders of them.

The templates are those of make_chat_fixtures.py, with what the public ones print of tools in place
of the stubs. Usage: make_tool_fixtures.py [FOLDER]
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from jinja2 import TemplateError
from make_chat_fixtures import BOS, CONVERSATIONS, EOS, TEMPLATES, message
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

HERMES = r"""    {{- "\n\n# Tools\n\nYou may call one or more functions to assist with the user query.\n\nYou are provided with function signatures within <tools></tools> XML tags:\n<tools>" }}
    {%- for tool in tools %}
        {{- "\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\n</tools>\n\nFor each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:\n<tool_call>\n{\"name\": <function-name>, \"arguments\": <args-json-object>}\n</tool_call><|im_end|>\n" }}
"""
QWEN25_SYSTEM = r"""    {%- if messages[0]['role'] == 'system' %}
        {{- messages[0]['content'] }}
    {%- else %}
        {{- 'DEFAULT' }}
    {%- endif %}
"""
QWEN3_SYSTEM = r"""    {%- if messages[0].role == 'system' %}
        {{- messages[0].content + '\n\n' }}
    {%- endif %}
"""
LLAMA_WORDS = r"""    {{- 'Respond in the format {"name": function name, "parameters": dictionary of argument name and its value}.' }}
    {{- "Do not use variables.\n\n" }}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\n\n" }}
    {%- endfor %}
"""
LLAMA_USER = r"""    {{- '<|start_header_id|>user<|end_header_id|>\n\n' -}}
    {{- "Given the following functions, please respond with a JSON for a function call " }}
    {{- "with its proper arguments that best answers the given prompt.\n\n" }}
"""


def replaced(template: str, *pairs: tuple[str, str]) -> str:
    for old, new in pairs:
        assert template.count(old) == 1, old
        template = template.replace(old, new)
    return template


def qwen25(template: str, system: str) -> str:
    stub = '    {{- "# Tools {\\"name\\": <function-name>}<|im_end|>\\n" }}\n'
    return replaced(template, (stub, QWEN25_SYSTEM.replace("DEFAULT", system) + HERMES))


def qwen3(template: str) -> str:
    start = "{%- if tools %}\n    {{- '<|im_start|>system\\n' }}\n"
    return replaced(template, (start, start + QWEN3_SYSTEM + HERMES.replace("\\n\\n# Tools", "# Tools")))


def llama(template: str) -> str:
    return replaced(
        template,
        ('    {{- "You have access to functions.\\n\\n" }}\n', '    {{- "You have access to functions." }}\n' + LLAMA_WORDS),
        ("content']|trim %}\n    {%- else %}\n        {{- raise",
         "content']|trim %}\n        {%- set messages = messages[1:] %}\n    {%- else %}\n        {{- raise"),
        ('"no first user message!"', "\"Cannot put tools in the first user message when there's no first user message!\""),
        ("    {{- first_user_message", LLAMA_USER + LLAMA_WORDS + "    {{- first_user_message"),
    )  # fmt: skip


QWEN = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."
MATH = "Please reason step by step, and put your final answer within \\\\boxed{}."
CASES = {
    "qwen25": qwen25(TEMPLATES["qwen25"], QWEN),
    "qwen25_math": qwen25(TEMPLATES["qwen25_math"], MATH),
    "qwen25_training": qwen25(TEMPLATES["qwen25_training"], "You are Qwen."),
    **{name: qwen3(TEMPLATES[name]) for name in ("qwen3", "qwen3_later", "qwen3_instruct", "qwen3_thinking", "qwen3_training")},
    "llama31": llama(TEMPLATES["llama31"]),
    "llama32": llama(TEMPLATES["llama32"]),
    "kimi_first": TEMPLATES["kimi_first"],
    "kimi": TEMPLATES["kimi"],
    "kimi_compact": replaced(TEMPLATES["kimi"], ("tools | tojson", "tools | tojson(separators=(',', ':'))")),
}

SEARCH = {
    "type": "function",
    "function": {
        "name": "search",
        "description": "Finds lines: \"é漢🙂\" \\ </tools> \t\u0001\u007f\u2028/",
        "parameters": {
            "type": "object",
            "properties": {
                "query": {"type": "string"},
                "most": {"type": "integer", "minimum": 1, "maximum": 9007199254740993, "default": -3},
                "share": {"type": "number", "enum": [0.5, 1.0, 1e-7, 0.0001, 1e15, 1.5e16, 1e-300, 123456.789, -2.5]},
            },
            "required": ["query"],
            "additionalProperties": False,
            "examples": [[], {}, None, True, [[1, {"a": []}]], ""],
        },
    },
}
CLOCK = {"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {}}}}
TOOLS = [[CLOCK], [SEARCH, CLOCK], [{}]]
SAID = [*CONVERSATIONS, [message("user", "  ")], [message("system", "s"), message("user", "")]]


def render(tokenizer: PreTrainedTokenizerFast, name: str, index: int, tools: int, generate: bool, go_on: bool) -> str | None:
    date = {"date_string": "26 Jul 2024"} if name == "llama32" else {}
    try:
        return tokenizer.apply_chat_template(
            SAID[index], TOOLS[tools], tokenize=False, add_generation_prompt=generate,
            continue_final_message=go_on, **date,
        )  # fmt: skip
    except (ValueError, TemplateError):
        return None


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "fixtures"
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()), bos_token=BOS, eos_token=EOS)
    cases = []
    for name, template in CASES.items():
        tokenizer.chat_template = template
        renders = []
        for index in (0, 1, 9, 10, 13, len(SAID) - 2, len(SAID) - 1):
            for tools, generate, go_on in ((0, True, False), (1, False, False), (2, False, True)):
                text = render(tokenizer, name, index, tools, generate, go_on)
                renders.append({"conversation": index, "tools": tools, "generate": generate, "continue": go_on, "text": text})
        cases.append({"name": name, "template": template, "renders": renders})
    document = {"bos": BOS, "eos": EOS, "tools": TOOLS, "conversations": SAID, "cases": cases}
    (folder / "tools.json").write_text(json.dumps(document, ensure_ascii=True, indent=1) + "\n")


if __name__ == "__main__":
    main()
