"""Tools for io/python/tool_worker.py: a calculator, and the reward of an answer that it helped to find."""

import ast
import operator

OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}
LONGEST = 200  # characters of an expression


def calculator(expression: str) -> str:
    """The value of an expression of numbers, + - * / // % and brackets."""
    if len(expression) > LONGEST:
        raise ValueError(f"expressions have {LONGEST} characters at most")
    try:
        return str(_value(ast.parse(expression.strip(), mode="eval").body))
    except SyntaxError:
        raise ValueError(f"{expression!r} is no expression") from None


def _value(node):
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return node.value
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        return OPERATORS[type(node.op)](_value(node.left), _value(node.right))
    if isinstance(node, ast.UnaryOp) and type(node.op) in OPERATORS:
        return OPERATORS[type(node.op)](_value(node.operand))
    raise ValueError(f"{ast.unparse(node)!r} is not of numbers, + - * / // % and brackets")


def compute_score(solution_str, ground_truth):
    _, mark, answer = solution_str.rpartition("####")
    return 1.0 if mark and answer.strip() == ground_truth else 0.0
