"""The page with a keyboard alone, on a narrow screen, in the dark, and for
screen readers as axe-core judges it, in headless Chromium."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]
                       / "integration"))
import harness  # noqa: E402
import page_case  # noqa: E402
import scripted_case  # noqa: E402

# What a person can use, within the dialog if there is one; #jump goes away as
# Tab scrolls to the end.
CONTROLS = """window.controls = new Set([...(document.querySelector(
    'dialog[open]') ?? document).querySelectorAll('button, input, select, '
    + 'textarea, summary, a[href], [tabindex]')].filter(one =>
        !one.disabled && !one.closest('[inert]') && one.type !== 'radio' &&
        one.id !== 'jump' &&
        one.checkVisibility({visibilityProperty: true}))); 0"""
# Takes the focused control off the list, if its focus can be seen.
PASSED = """(() => { const at = document.activeElement, look =
    getComputedStyle(at); if (look.outlineStyle !== 'none' ||
    look.boxShadow !== 'none' || at.closest('.box')) controls.delete(at);
    return 0; })()"""
# Whether nothing moves any more but what moves for ever.
SETTLED = """document.getAnimations().every(one =>
    one.playState !== 'running' ||
    one.effect.getComputedTiming().endTime === Infinity)"""


class LooksTest(scripted_case.ScriptedCase):
    def test_each_control_is_reached_by_the_keyboard(self):
        page = self.page
        self.everything()
        page.value("document.querySelector('.reasoning').open = true; 0")
        for width, height, opened in ((1360, 860, None), (390, 844, None),
                                      (390, 844, "open-history"),
                                      (390, 844, "pill"),
                                      (1360, 860, "open-settings")):
            with self.subTest(width=width, opened=opened):
                page.look(width, height)
                page.wait(SETTLED)
                if opened:
                    page.value(f"document.getElementById('{opened}').focus()")
                    page.key("Enter")
                    page.wait(SETTLED)
                self.assertEqual(self.missed_by_tab(), [])
                page.key("Escape")
                page.wait(SETTLED)

    def missed_by_tab(self):
        """Controls that are shown and that Tab does not come to, or comes to
        without showing it."""
        self.page.value(CONTROLS)
        for _ in range(self.page.value("controls.size") + 12):
            self.page.key("Tab")
            self.page.value(PASSED)
        return self.page.value("[...controls].map(c => c.outerHTML)")

    def check_looks(self, axe, name):
        """Violations by axe-core in light and dark, at two widths."""
        for width, height in ((1360, 860), (390, 844)):
            for dark in (False, True):
                self.page.look(width, height, dark=dark)
                self.page.wait(SETTLED)
                with self.subTest(name, width=width, dark=dark):
                    self.assertEqual(self.page.value(page_case.AXE % axe), "")
                    self.assertLessEqual(self.page.value(
                        "document.documentElement.scrollWidth"), width)
        self.page.look()
        self.page.wait(SETTLED)

    def test_axe_finds_no_violations(self):
        axe = harness.test_data("axe/axe.min.js").read_text()
        page = self.page
        self.check_looks(axe, "welcome")
        self.everything()
        self.check_looks(axe, "a chat")
        page.value("document.querySelector('.reasoning').open = true; "
                   "document.querySelector('.file').open = true; 0")
        self.press("Time of this answer")
        page.wait("/ms each/.test(document.getElementById('times-of')"
                  ".textContent)")
        page.value("document.querySelector('#cluster details').open = true")
        self.gateway.cluster["ready"] = False
        self.gateway.cluster["stages"][1]["state"] = "lost"
        page.wait("document.getElementById('pill-text').textContent"
                  " === 'stage 1 lost'")
        self.check_looks(axe, "a stage is lost, all is unfolded")
        self.press("Settings")
        self.set_field("#format", "schema")
        self.set_field("#schema", "{")
        self.check_looks(axe, "settings")
        page.key("Escape")
        self.press("Edit this message")
        self.check_looks(axe, "editing")
        page.key("Escape")
        page.look(390, 844)
        page.wait(SETTLED)
        for button in ("open-history", "pill"):
            page.click(f"#{button}")
            page.wait(SETTLED)
            with self.subTest(button):
                self.assertEqual(page.value(page_case.AXE % axe), "")
            page.key("Escape")


if __name__ == "__main__":
    harness.main()
