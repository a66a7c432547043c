"""A real Prometheus, real hapax, a real Kafka: what fires, what is silent, and what dashboards show."""
import unittest
import xml.etree.ElementTree

import live
import picture
import scenarios
import test_rules


class TestLive(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.told = live.run()

    def test_everything_is_as_it_should_be(self):
        self.assertEqual(live.complaints(self.told), [])

    def test_every_alert_has_a_scenario(self):
        self.assertEqual(set().union(*(scenario.alerts for scenario in scenarios.ALL)), set(test_rules.NAMES))

    def test_a_picture_can_be_drawn(self):
        drawn = xml.etree.ElementTree.fromstring(self.told.picture)
        texts = [node.text for node in drawn.iter("{http://www.w3.org/2000/svg}text")]
        self.assertIn("Absorbed by topic", texts)
        self.assertIn("duplicate_absorbed", texts)
        self.assertNotIn("No data", texts)
        self.assertLess(len(self.told.picture), 100_000)


class TestPicture(unittest.TestCase):
    def test_numbers_are_written_with_their_unit(self):
        for value, unit, text in ((0.0512, "percentunit", "5.12 %"), (0.0025, "s", "2.5 ms"), (1536, "bytes", "1.5 KiB"), (0, "Bps", "0 B/s"),
                                  (12.34, "ops", "12.3 /s"), (250.4, "short", "250"), (3, "short", "3")):
            self.assertEqual(picture.number(value, unit), text)


if __name__ == "__main__":
    unittest.main()
