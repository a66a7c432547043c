"""The comparison can fail, and reads what the suites print."""
import unittest

import peers
import result
from peers import FAIL, PASS, SKIP


def compared(direct, hapax, reasons=None):
    comparison = result.Comparison("suite", "suite 1", 3, reasons or {})
    for route, tries in (("direct", direct), ("hapax", hapax)):
        for results in tries:
            comparison.take(route, results)
    return comparison


class TestComparison(unittest.TestCase):
    def test_what_passes_only_direct_is_a_complaint(self):
        comparison = compared([{"a": PASS, "b": PASS}], [{"a": PASS, "b": FAIL}])
        self.assertEqual(comparison.complaints(), ["suite: b: pass direct, fail through hapax"])
        self.assertIn("no reason is known", result.page("today", [comparison]))

    def test_a_test_that_one_route_never_ran_is_a_complaint(self):
        comparison = compared([{"a": PASS, "b": PASS}], [{"a": PASS}])
        self.assertEqual(comparison.complaints(), ["suite: b: pass direct, not run through hapax"])

    def test_a_suite_that_ran_nothing_is_a_complaint(self):
        self.assertEqual(len(compared([{}], [{}]).complaints()), 2)

    def test_what_fails_both_ways_needs_a_reason(self):
        self.assertEqual(len(compared([{"a": FAIL}], [{"a": FAIL}]).complaints()), 1)
        self.assertEqual(compared([{"a": FAIL}], [{"a": FAIL}], {"a": "its broker is too new"}).complaints(), [])

    def test_a_later_try_that_passes_counts_and_is_listed(self):
        comparison = compared([{"a": PASS}], [{"a": FAIL}, {"a": PASS}])
        self.assertEqual((comparison.complaints(), comparison.retried(), comparison.unsettled()), ([], ["a"], set()))

    def test_parts_are_compared_and_whole_tests_are_counted(self):
        comparison = compared([{"a": PASS, "a/x": PASS}], [{"a": FAIL, "a/x": FAIL}])
        self.assertEqual(comparison.differing(), ["a/x"])
        self.assertEqual(comparison.counts("hapax"), "0 / 1 / 0")


class TestReading(unittest.TestCase):
    def test_a_go_test_without_an_end_has_failed(self):
        text = "\x16=== RUN   A\n\x16=== RUN   A/x\n\x16    --- PASS: A/x (0.1s)\n\x16--- PASS: A (0.1s)\n\x16=== RUN   B\npanic\n"
        self.assertEqual(peers.go_results(text), {"A": PASS, "A/x": PASS, "B": FAIL})

    def test_a_skipped_go_test_is_no_pass(self):
        self.assertEqual(peers.go_results("=== RUN   A\n--- SKIP: A (0.00s)\n"), {"A": SKIP})

    def test_a_pattern_chooses_and_a_set_names(self):
        self.assertTrue(peers.chosen("0103_transactions", peers.Pattern("^0103")))
        self.assertFalse(peers.chosen("0090_idempotence", {"0103_transactions"}))
        self.assertEqual(peers.go_pattern({"A/x", "A/y", "B"}), "^(A|B)$")


if __name__ == "__main__":
    unittest.main()
