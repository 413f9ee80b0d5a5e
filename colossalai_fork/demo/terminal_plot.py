"""Draws the loss curves with the dots of Braille characters, or with letters where no colours tell them apart."""

import math

from rich.text import Text

from .curves import Curves

#: Rows of the plot.
HEIGHT = 16
#: At most so many columns, however wide the terminal is.
WIDTH = 100
#: Columns left of the plot, for the numbers.
_MARGIN = 6

_COLOURS = {"astray": "bright_black", "unmodified": "red", "reference": "blue", "fixed": "green"}
_LETTERS = {"astray": "a", "unmodified": "u", "reference": "r", "fixed": "f"}
#: The number of each dot of a Braille character, from top to bottom, in its left and in its right column.
_DOTS = ((0, 1, 2, 6), (3, 4, 5, 7))
_BRAILLE = 0x2800


class Canvas:
    """A grid of characters, each of which can show several dots.

    Args:
        columns (int): its width.
        rows (int): its height.
        braille (bool): whether a character has two by four dots, or is one letter.
    """

    def __init__(self, columns: int, rows: int, braille: bool) -> None:
        self.columns, self.rows, self.braille = columns, rows, braille
        self.dots_across, self.dots_down = (2, 4) if braille else (1, 1)
        self._dots = {}
        self._names = {}

    def draw(self, name: str, points: list[tuple[float, float]]) -> None:
        """Draw straight lines from point to point.

        Args:
            name (str): what for; decides the colour or the letter.
            points (List[Tuple[float, float]]): from (0, 0), lower left, to (1, 1), upper right. The rest is left out.
        """
        across, down = self.columns * self.dots_across - 1, self.rows * self.dots_down - 1
        places = [(x * across, (1 - y) * down) for x, y in points]
        for (x1, y1), (x2, y2) in zip(places, places[1:]):
            pieces = max(1, math.ceil(max(abs(x2 - x1), abs(y2 - y1))))
            for piece in range(pieces + 1):
                part = piece / pieces
                self._mark(name, round(x1 + part * (x2 - x1)), round(y1 + part * (y2 - y1)))

    def _mark(self, name: str, x: int, y: int) -> None:
        row, column = place = y // self.dots_down, x // self.dots_across
        if 0 <= column < self.columns and 0 <= row < self.rows:
            self._dots[place] = self._dots.get(place, 0) | 1 << _DOTS[x % self.dots_across][y % self.dots_down]
            names = self._names.setdefault(place, [])
            if name not in names:
                names.append(name)

    def row(self, row: int) -> Text:
        """Return a row of characters.

        Args:
            row (int): which, from the top.

        Returns:
            Text: the characters. Where curves meet they take turns.
        """
        text = Text()
        for column in range(self.columns):
            names = self._names.get((row, column))
            if not names:
                text.append(" ")
                continue
            name = names[column // 2 % len(names)]
            text.append(chr(_BRAILLE | self._dots[row, column]) if self.braille else _LETTERS[name], _COLOURS[name])
        return text


def plot(curves: Curves, width: int, braille: bool = True) -> Text:
    """Draw the curves.

    Args:
        curves (Curves): the curves.
        width (int): columns of the terminal.
        braille (bool): whether the terminal has colours, and Braille characters.

    Returns:
        Text: the plot, with its axes and a legend.
    """
    canvas = Canvas(max(20, min(width, WIDTH) - _MARGIN - 1), HEIGHT, braille)
    for name in _COLOURS:
        curve = getattr(curves, name)
        points = [
            # Far above the plot is as good as infinitely far.
            (step / curves.last_step, min(loss / curves.top, 10.0) if math.isfinite(loss) else 10.0)
            for step, loss in zip(curve.steps, curve.losses)
        ]
        canvas.draw(name, points)

    spacing = next(each for each in (0.1, 0.2, 0.5, 1, 2, 5, 10, math.inf) if curves.top / each <= 6)
    marks = [count * spacing for count in range(7) if count * spacing <= curves.top] if spacing < math.inf else [0.0]
    at_row = {round((1 - mark / curves.top) * (HEIGHT - 1)): f"{mark:g}" for mark in marks}
    bar, corner, line = ("│", "└", "─") if braille else ("|", "+", "-")
    lines = [Text("loss (cross-entropy)", "bold")]
    for row in range(HEIGHT):
        lines.append(Text(f"{at_row.get(row, ''):>{_MARGIN - 1}} {bar}").append_text(canvas.row(row)))
    lines.append(Text(" " * _MARGIN + corner + line * canvas.columns))
    place = _MARGIN + 1 + round(curves.checkpoint / curves.last_step * (canvas.columns - 1))
    lines.append(Text(" " * place + f"^ the checkpoint, after {curves.checkpoint} of {curves.last_step + 1} steps"))
    for name, colour in _COLOURS.items():
        sample = "⠒⠒⠒" if braille else _LETTERS[name]
        lines.append(Text(" " * _MARGIN).append(sample, colour).append(f" {getattr(curves, name).name}"))
    return Text("\n").join(lines)
