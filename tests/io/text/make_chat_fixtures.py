"""Write fixtures/chat.json: chat templates, conversations and what `transformers` renders of them.

The templates do what the public ones of these models do, with their branches for tools cut to a
stub, since those are never rendered. Usage: make_chat_fixtures.py [FOLDER]
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from jinja2 import TemplateError
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

BOS = "<|begin_of_text|>"
EOS = "</s>"
ANSWER = "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
MESSAGE = "{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}"

TOOL_BRANCH = r"""    {%- elif message.role == "tool" %}
        {%- if loop.first or (messages[loop.index0 - 1].role != "tool") %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- message.content }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
"""

QWEN25 = r"""{%- if tools %}
    {{- '<|im_start|>system\n' }}
    {{- "# Tools {\"name\": <function-name>}<|im_end|>\n" }}
{%- else %}
    {%- if messages[0]['role'] == 'system' %}
        {{- '<|im_start|>system\n' + messages[0]['content'] + '<|im_end|>\n' }}
    {%- else %}
        {{- '<|im_start|>system\nDEFAULT<|im_end|>\n' }}
    {%- endif %}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) or (message.role == "assistant" and not message.tool_calls) %}
        {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>' + '\n' }}
    {%- elif message.role == "assistant" %}
        {%- for tool_call in message.tool_calls %}
            {{- tool_call.arguments | tojson }}
        {%- endfor %}
""" + TOOL_BRANCH + "{%- endif %}\n"  # fmt: skip

QWEN3_START = r"""{%- if tools %}
    {{- '<|im_start|>system\n' }}
{%- else %}
    {%- if messages[0].role == 'system' %}
        {{- '<|im_start|>system\n' + messages[0].content + '<|im_end|>\n' }}
    {%- endif %}
{%- endif %}
"""
QWEN3_QUERY = r"""{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" STRINGand not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step_tool = false %}
        {%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
"""
QWEN3_CONTENT = r"""{%- for message in messages %}
    {%- if message.content is string %}
        {%- set content = message.content %}
    {%- else %}
        {%- set content = '' %}
    {%- endif %}
"""
QWEN3_TURN = r"""    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\n' + CONTENT + '<|im_end|>' + '\n' }}
    {%- elif message.role == "assistant" %}
"""
QWEN3_REASONING = r"""        {%- if loop.index0 > ns.last_query_index %}
            {%- if loop.last or (not loop.last and reasoning_content) %}
                {{- '<|im_start|>' + message.role + '\n<think>\n' + reasoning_content.strip('\n') + '\n</think>\n\n' + content.lstrip('\n') }}
            {%- else %}
                {{- '<|im_start|>' + message.role + '\n' + content }}
            {%- endif %}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\n' + content }}
        {%- endif %}
"""
QWEN3_CALLS = r"""        {%- if message.tool_calls %}
            {%- for tool_call in message.tool_calls %}
                {{- tool_call.name }}
            {%- endfor %}
        {%- endif %}
        {{- '<|im_end|>\n' }}
"""
QWEN3_END = r"""    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\n\n</think>\n\n' }}
    {%- endif %}
{%- endif %}"""
QWEN3 = (
    QWEN3_START + QWEN3_QUERY.replace("STRING", "") + "{%- for message in messages %}\n"
    + QWEN3_TURN.replace("CONTENT", "message.content") + r"""        {%- set content = message.content %}
        {%- set reasoning_content = '' %}
        {%- if message.reasoning_content is defined and message.reasoning_content is not none %}
            {%- set reasoning_content = message.reasoning_content %}
        {%- else %}
            {%- if '</think>' in message.content %}
                {%- set content = message.content.split('</think>')[-1].lstrip('\n') %}
                {%- set reasoning_content = message.content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') %}
            {%- endif %}
        {%- endif %}
""" + QWEN3_REASONING + QWEN3_CALLS + TOOL_BRANCH + QWEN3_END
)  # fmt: skip
QWEN3_LATER = (
    QWEN3_START + QWEN3_QUERY.replace("STRING", "and message.content is string ") + QWEN3_CONTENT
    + QWEN3_TURN.replace("CONTENT", "content") + r"""        {%- set reasoning_content = '' %}
        {%- if message.reasoning_content is string %}
            {%- set reasoning_content = message.reasoning_content %}
        {%- else %}
            {%- if '</think>' in content %}
                {%- set reasoning_content = content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') %}
                {%- set content = content.split('</think>')[-1].lstrip('\n') %}
            {%- endif %}
        {%- endif %}
""" + QWEN3_REASONING + QWEN3_CALLS + TOOL_BRANCH + QWEN3_END
)  # fmt: skip
QWEN3_INSTRUCT = (
    QWEN3_START + QWEN3_CONTENT + QWEN3_TURN.replace("CONTENT", "content")
    + "        {{- '<|im_start|>' + message.role + '\\n' + content }}\n" + QWEN3_CALLS + TOOL_BRANCH + "{%- endif %}"
)  # fmt: skip

QWEN3_THINKING = QWEN3_LATER.replace(QWEN3_END, "{%- endif %}").replace(
    "{{- '<|im_start|>assistant\\n' }}", "{{- '<|im_start|>assistant\\n<think>\\n' }}"
)

# Trainers mark what the model said: generation blocks, and what earlier turns looked like stays as it was.
QWEN25_TRAINING = QWEN25[: QWEN25.index("{%- for message")] + r"""{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>' + '\n' }}
    {%- elif message.role == "assistant" %}
        {{- '<|im_start|>assistant' }}
        {%- generation %}
        {%- if not message.tool_calls %}
            {{- '\n' + message.content + '<|im_end|>\n' }}
        {%- else %}
            {%- for tool_call in message.tool_calls %}
                {%- if tool_call.function is defined %}
                    {%- set tool_call = tool_call.function %}
                {%- endif %}
                {{- tool_call.name }}
            {%- endfor %}
        {%- endif %}
        {%- endgeneration %}
""" + TOOL_BRANCH + "{%- endif %}\n"  # fmt: skip
QWEN3_TRAINING = QWEN3_LATER.replace(
    QWEN3_REASONING,
    r"""        {{- '<|im_start|>' + message.role + '\n' }}
        {%- generation %}
        {{- '<think>\n' + reasoning_content.strip('\n') + '\n</think>\n\n' + content.lstrip('\n') }}
""",
).replace(QWEN3_CALLS, QWEN3_CALLS + "        {%- endgeneration %}\n")
QWEN3_INSTRUCT_TRAINING = QWEN3_INSTRUCT.replace(
    "        {{- '<|im_start|>' + message.role + '\\n' + content }}\n" + QWEN3_CALLS,
    "        {{- '<|im_start|>' + message.role + '\\n' }}\n        {%- generation %}\n        {{- content }}\n"
    + QWEN3_CALLS + "        {%- endgeneration %}\n",
)  # fmt: skip

LLAMA2 = (
    "{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}"
    "{% set system_message = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}"
    "{% set system_message = false %}{% endif %}{% for message in loop_messages %}"
    "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception("
    "'Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}"
    "{% if loop.index0 == 0 and system_message != false %}"
    "{% set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] %}"
    "{% else %}{% set content = message['content'] %}{% endif %}{% if message['role'] == 'user' %}"
    "{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}{% elif message['role'] == 'assistant' %}"
    "{{ ' '  + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}"
)
LLAMA3 = (
    "{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = '<|start_header_id|>' +"
    " message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' %}"
    "{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}"
)
LLAMA3_ANSWER = "{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}"
LLAMA31 = r"""{{- bos_token }}
{%- if custom_tools is defined %}
    {%- set tools = custom_tools %}
{%- endif %}
{%- if not tools_in_user_message is defined %}
    {%- set tools_in_user_message = true %}
{%- endif %}
{%- if not date_string is defined %}
DATE{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}

{#- The system message goes to the right place. #}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}

{{- "<|start_header_id|>system<|end_header_id|>\n\n" }}
{%- if ENVIRONMENT %}
    {{- "Environment: ipython\n" }}
{%- endif %}
{{- "Cutting Knowledge Date: December 2023\n" }}
{{- "Today Date: " + date_string + "\n\n" }}
{%- if tools is not none and not tools_in_user_message %}
    {{- "You have access to functions.\n\n" }}
{%- endif %}
{{- system_message }}
{{- "<|eot_id|>" }}

{#- Tools go to the first user message, isn't it? #}
{%- if tools_in_user_message and not tools is none %}
    {%- if messages | length != 0 %}
        {%- set first_user_message = messages[0]['content']|trim %}
    {%- else %}
        {{- raise_exception("no first user message!") }}
{%- endif %}
    {{- first_user_message + "<|eot_id|>"}}
{%- endif %}

{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {{- message.tool_calls[0].function | tojson }}
    {%- elif message.role == "tool" or message.role == "ipython" %}
        {{- message.content | tojson }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
{%- endif %}
"""
LLAMA3_TRAINING = r"""{#- Its answers are marked. -#}
{%- for message in messages %}
    {%- if loop.index0 == 0 %}{{- bos_token }}{%- endif %}
    {%- if message['role'] == 'assistant' %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
        {%- generation %}
        {{- message['content'] | trim + '<|eot_id|>' }}
        {%- endgeneration %}
    {%- else %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' + message['content'] | trim + '<|eot_id|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
{%- endif %}
"""
R1_START = (
    "{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}"
    "{% set ns = namespace(is_first=false, is_tool=false, is_output_first=true, system_prompt='') %}"
    "{%- for message in messages %}{%- if message['role'] == 'system' %}"
    "{% set ns.system_prompt = message['content'] %}{%- endif %}{%- endfor %}{{bos_token}}{{ns.system_prompt}}"
    "{%- for message in messages %}{%- if message['role'] == 'user' %}{%- set ns.is_tool = false -%}"
    "{{'<｜User｜>' + message['content']}}{%- endif %}"
    "{%- if message['role'] == 'assistant' and message['content'] is none %}{%- set ns.is_tool = false -%}"
    "{%- for tool in message['tool_calls']%}{{tool['type']}}{%- endfor %}{%- endif %}"
    "{%- if message['role'] == 'assistant' and message['content'] is not none %}{%- if ns.is_tool %}"
)
R1_TOOL = "{{'<｜tool▁outputs▁end｜>' + message['content'] + '<｜end▁of▁sentence｜>'}}{%- set ns.is_tool = false -%}"
R1_SPLIT = (
    "{% set content = message['content'] %}{% if '</think>' in content %}"
    "{% set content = content.split('</think>')[-1] %}{% endif %}"
)
R1_END = (
    "{%- endif %}{%- endif %}{%- if message['role'] == 'tool' %}{%- set ns.is_tool = true -%}"
    "{{message['content']}}{%- endif %}{%- endfor -%}{% if ns.is_tool %}{{'<｜tool▁outputs▁end｜>'}}{% endif %}"
    "{% if add_generation_prompt and not ns.is_tool %}{{'<｜Assistant｜>'}}{% endif %}"
)
R1_FIRST = (
    R1_START + R1_TOOL + "{%- else %}" + R1_SPLIT + "{{'<｜Assistant｜>' + content + '<｜end▁of▁sentence｜>'}}" + R1_END
)
R1 = R1_FIRST.replace("{{'<｜Assistant｜>'}}", "{{'<｜Assistant｜><think>\\n'}}")
R1_TRAINING = (
    "{#- Its answers are marked. -#}\n" + R1_START + "{%- generation %}" + R1_TOOL + "{%- endgeneration %}{%- else %}"
    "{%- generation %}{{'<｜Assistant｜>' + message['content'] + '<｜end▁of▁sentence｜>'}}{%- endgeneration %}"
    + R1_END.replace("{{'<｜Assistant｜>'}}", "{{'<｜Assistant｜><think>\\n'}}")
)
# Moonlight's, and Kimi-K2's of two times.
KIMI_SYSTEM = (
    "{%- if loop.first and messages[0]['role'] != 'system' -%}<|im_system|>system<|im_middle|>DEFAULT<|im_end|>{%- endif -%}\n"
)
KIMI_ANSWER = "{%- if add_generation_prompt -%}\n  <|im_assistant|>assistant<|im_middle|>\n{%- endif -%}"
MOONLIGHT = (
    "{%- for message in messages -%}" + KIMI_SYSTEM
    + "".join(f"{{%- if message['role'] == '{role}' -%}}<|im_{role}|>{{%- endif -%}}" for role in ("system", "user", "assistant"))
    + "{{ message['role'] }}<|im_middle|>{{message['content']}}<|im_end|>{%- endfor -%}" + KIMI_ANSWER
)  # fmt: skip
KIMI_CONTENT = r"""
  {%- if message['role'] == 'assistant' and message.get('tool_calls') -%}
    <|tool_calls_section_begin|>
    {%- for tool_call in message['tool_calls'] -%}
      {{ tool_call['id'] }}{{ tool_call['function']['arguments'] | tojson(separators=(',', ':')) }}
    {%- endfor -%}
  {%- elif message['role'] == 'tool' -%}
    ## {{ message.tool_call_id }}
    {{ message['content'] }}
  {%- elif message['content'] is string -%}
    {{ message['content'] }}
  {%- elif message['content'] is not none -%}
    {% for content in message['content'] -%}
      {% if content['type'] == 'image' or 'image' in content -%}<|media_pad|>{% else -%}{{ content['text'] }}{%- endif -%}
    {%- endfor -%}
  {%- endif -%}
  <|im_end|>
{%- endfor -%}
"""
KIMI_TOOLS = "{%- if tools -%}\n  <|im_system|>tool_declare<|im_middle|>{{ tools | tojson }}<|im_end|>\n{%- endif -%}\n"
KIMI_FIRST = (
    KIMI_TOOLS + "{%- for message in messages -%}\n  " + KIMI_SYSTEM + r"""
  {%- if message['role'] == 'system' -%}
    <|im_system|>system<|im_middle|>
  {%- elif message['role'] == 'user' -%}
    <|im_user|>user<|im_middle|>
  {%- elif message['role'] == 'assistant' -%}
    <|im_assistant|>assistant<|im_middle|>
  {%- elif message['role'] == 'tool' -%}
    <|im_system|>tool<|im_middle|>
  {%- endif -%}
""" + KIMI_CONTENT + KIMI_ANSWER
)  # fmt: skip
KIMI_NAMES = (
    KIMI_TOOLS + "{%- for message in messages -%}\n  " + KIMI_SYSTEM + r"""
  {%- set role_name =  message.get('name') or  message['role'] -%}
  {%- if message['role'] == 'user' -%}
    <|im_user|>{{role_name}}<|im_middle|>
  {%- elif message['role'] == 'assistant' -%}
    <|im_assistant|>{{role_name}}<|im_middle|>
  {%- else -%}
    <|im_system|>{{role_name}}<|im_middle|>
  {%- endif -%}
""" + KIMI_CONTENT + KIMI_ANSWER
)  # fmt: skip
# Its lists of parts are never what other templates are given.
QWEN2_VL = (
    "{% set image_count = namespace(value=0) %}{% set video_count = namespace(value=0) %}{% for message in messages %}"
    "{% if loop.first and message['role'] != 'system' %}<|im_start|>system\nDEFAULT<|im_end|>\n{% endif %}"
    "<|im_start|>{{ message['role'] }}\n{% if message['content'] is string %}{{ message['content'] }}<|im_end|>\n"
    "{% else %}{% for content in message['content'] %}"
    "{% if content['type'] == 'image' or 'image' in content or 'image_url' in content %}"
    "{% set image_count.value = image_count.value + 1 %}"
    "{% if add_vision_id %}Picture {{ image_count.value }}: {% endif %}<|vision_start|><|image_pad|><|vision_end|>"
    "{% elif content['type'] == 'video' or 'video' in content %}{% set video_count.value = video_count.value + 1 %}"
    "{% if add_vision_id %}Video {{ video_count.value }}: {% endif %}<|vision_start|><|video_pad|><|vision_end|>"
    "{% elif 'text' in content %}{{ content['text'] }}{% endif %}{% endfor %}<|im_end|>\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
FIXED_DATE = '    {%- set date_string = "26 Jul 2024" %}\n'
TODAY = (
    '    {%- if strftime_now is defined %}\n        {%- set date_string = strftime_now("%d %b %Y") %}\n    {%- else %}\n'
    + FIXED_DATE
    + "    {%- endif %}\n"
)

TEMPLATES = {
    "chatml": "{% for message in messages %}" + MESSAGE + "{% endfor %}" + ANSWER,
    "chatml_lines": (
        "{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}\n"
        "{%- for message in messages %}\n    {{- '<|im_start|>' + message.role + \"\\n\" + message.content + '<|im_end|>\\n' }}\n"
        "{%- endfor %}\n{%- if add_generation_prompt %}\n    {{- '<|im_start|>assistant\\n' }}\n{%- endif %}\n"
    ),
    "chatml_text": (
        "{% for message in messages %}\n<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}\n"
        "{% if add_generation_prompt %}\n<|im_start|>assistant\n{% endif %}"
    ),
    "qwen2": (
        "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
        "{{ '<|im_start|>system\\nYou are a helpful assistant.<|im_end|>\\n' }}{% endif %}" + MESSAGE + "{% endfor %}" + ANSWER
    ),
    # What Python makes of escapes, and Jinja of line ends.
    "qwen2_escapes": (
        "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
        r"""{{ '<|im_start|>system\nIt\u2019s \x41\U0001F600 \d\s\% \r\t\v \\n \'q\" \
on<|im_end|>\n' }}{% endif %}""" + MESSAGE + "{% endfor %}" + ANSWER
    ),
    "chatml_crlf": (
        "{%- for message in messages %}\r\n    {{- '<|im_start|>' + message.role + '\r\n' + message.content + '<|im_end|>\r'"
        " }}\r\n{%- endfor %}\r\n{%- if add_generation_prompt %}\r\n<|im_start|>assistant\r\n{% endif %}\r\n"
    ),
    "chatml_spaces": (  # a line's white space before a block goes, whatever its kind
        "{% for message in messages %}\n\u3000\x0c{# said #}" + MESSAGE + "\u00a0\n {%- endfor %}" + ANSWER
    ),
    "qwen25": QWEN25.replace("DEFAULT", "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."),
    "qwen25_math": QWEN25.replace(
        "DEFAULT", "Please reason step by step, and put your final answer within \\\\boxed{}."
    ),
    "qwen2_vl": QWEN2_VL.replace("DEFAULT", "You are a helpful assistant."),
    "qwen3": QWEN3,
    "qwen3_later": QWEN3_LATER,
    "qwen3_instruct": QWEN3_INSTRUCT,
    "qwen3_thinking": QWEN3_THINKING,
    "qwen25_training": QWEN25_TRAINING.replace("DEFAULT", "You are Qwen."),
    "qwen3_training": QWEN3_TRAINING,
    "qwen3_instruct_training": QWEN3_INSTRUCT_TRAINING,
    "llama3_training": LLAMA3_TRAINING,
    "r1_first": R1_FIRST,
    "r1": R1,
    "r1_training": R1_TRAINING,
    "llama2": LLAMA2,
    "llama2_later": LLAMA2.replace("content.strip()", "content | trim"),
    "llama3_first": LLAMA3 + LLAMA3_ANSWER,
    "llama3": LLAMA3 + "{% if add_generation_prompt %}" + LLAMA3_ANSWER + "{% endif %}",
    "moonlight": MOONLIGHT.replace("DEFAULT", "You are a helpful assistant"),
    "kimi_first": KIMI_FIRST.replace("DEFAULT", "You are a helpful assistant"),
    "kimi": KIMI_NAMES.replace("DEFAULT", "You are Kimi."),
    "llama31": LLAMA31.replace("DATE{", FIXED_DATE + "{").replace(
        "ENVIRONMENT", "builtin_tools is defined or tools is not none"
    ),
    "llama32": LLAMA31.replace("DATE{", TODAY + "{").replace("ENVIRONMENT", "tools is not none"),
}


def message(role: str, content: str | list) -> dict:
    return {"role": role, "content": content}


CONVERSATIONS = [
    [message("user", "What is 2+2?")],
    [message("system", "Be brief."), message("user", "Hi")],
    [message("system", ""), message("user", "  spaces \n\u3000\x1c")],
    [message("user", "a"), message("assistant", "b"), message("user", "c")],
    [message("user", "a"), message("assistant", "<think>\nwhy\n\n</think>\n\nb"), message("user", "c")],
    [message("user", "a"), message("assistant", "<think>\nwhy\n</think>\n\nb")],
    [message("user", "a"), message("assistant", "b"), message("assistant", "x</think>y</think>\nz")],
    [message("user", "a"), message("assistant", "\n\nplain"), message("assistant", "\nend\n")],
    [message("assistant", "<think>t</think>hello"), message("system", "late")],
    [message("user", "q"), message("assistant", "x"), message("user", "<tool_response>r</tool_response>"),
     message("assistant", "<think>\nr2</think>s"), message("assistant", "t")],
    [message("user", "a"), message("assistant", "The answer is ")],
    [message("user", "a"), message("assistant", " \n")],
    [message("user", "a"), message("assistant", "<think>\nHmm")],
    [message("system", "s"), message("system", "s2"), message("user", "a")],
    [message("user", "'quotes' \"double\" {{ not jinja }} {% no %} <|im_end|> é漢🙂")],
]  # fmt: skip

IMAGE = {"type": "image"}


def text(said: str) -> dict[str, str]:
    return {"type": "text", "text": said}


# With pictures: as texts, where <image> stands for one, and as the parts that verl's dataset makes of them.
PICTURED = [
    ([message("user", "<image>What is it?")], [message("user", [IMAGE, text("What is it?")])]),
    ([message("system", "s"), message("user", " a <image>\n<image><image> b\n"), message("assistant", "c"),
      message("user", "<image>")],
     [message("system", [text("s")]),
      message("user", [text(" a "), IMAGE, text("\n"), IMAGE, IMAGE, text(" b\n")]), message("assistant", [text("c")]),
      message("user", [IMAGE])]),
    ([message("user", "none")], [message("user", [text("no"), text("ne")])]),
]  # fmt: skip


def render_text(tokenizer: PreTrainedTokenizerFast, name: str, render: dict) -> str:
    # Left to itself Llama 3.2's template names today.
    date = render.get("date", "26 Jul 2024" if name == "llama32" else None)
    return tokenizer.apply_chat_template(
        CONVERSATIONS[render["conversation"]], tokenize=False, add_generation_prompt=render["generate"],
        enable_thinking=render["thinking"], continue_final_message=render.get("continue", False),
        **({"date_string": date} if date else {}),
    )  # fmt: skip


def render_or_none(tokenizer: PreTrainedTokenizerFast, name: str, render: dict) -> str | None:
    """None where the template refuses, or leaves out parts of the message to continue."""
    try:
        return render_text(tokenizer, name, render)
    except (ValueError, TemplateError):
        return None


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "fixtures"
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()), bos_token=BOS, eos_token=EOS)
    cases = []
    for name, template in TEMPLATES.items():
        tokenizer.chat_template = template
        renders = []
        for index, conversation in enumerate(CONVERSATIONS):
            for generate, thinking in ((True, True), (True, False), (False, True)):
                render = {"conversation": index, "generate": generate, "thinking": thinking}
                renders.append({**render, "text": render_or_none(tokenizer, name, render)})
            render = {"conversation": index, "generate": False, "thinking": True, "continue": True}
            renders.append({**render, "text": render_or_none(tokenizer, name, render)})
            if name in ("llama31", "llama32"):
                render = {"conversation": index, "generate": True, "thinking": True, "date": "1 Jan 2025"}
                renders.append({**render, "text": render_text(tokenizer, name, render)})
        cases.append({"name": name, "template": template, "bos": BOS, "eos": EOS, "renders": renders})
    tokenizer.chat_template = TEMPLATES["qwen2_vl"]
    pictured = [
        {"texts": texts, "parts": parts,
         "text": tokenizer.apply_chat_template(parts, tokenize=False, add_generation_prompt=True)}
        for texts, parts in PICTURED
    ]  # fmt: skip
    document = {"conversations": CONVERSATIONS, "cases": cases, "pictured": pictured}
    (folder / "chat.json").write_text(json.dumps(document, ensure_ascii=True, indent=1) + "\n")


if __name__ == "__main__":
    main()
