"""A reward function as verl has it, for io/python/score_worker.py: what follows the last "####" is the answer."""


def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    _, mark, answer = solution_str.rpartition("####")
    return 1.0 if mark and answer.strip() == ground_truth else 0.0
