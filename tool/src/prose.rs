// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sentences and commands in lines of a given width. Nothing is broken except between words.

/// How wide sentences are in a terminal of this width or in a pipe: no wider than is read with ease.
pub fn within(width: Option<u16>) -> usize {
    const WIDEST: u16 = 100;
    width.unwrap_or(WIDEST).min(WIDEST).into()
}

/// Folds each line at spaces so that it has at most `width` characters; what follows keeps the line's indentation. A word that is
/// longer than that stays whole.
pub fn wrap(text: &str, width: usize) -> String {
    behind("", text, width)
}

/// The same for a text behind a label: what follows stands below the text's beginning, or two in where the label is long.
pub fn behind(label: &str, text: &str, width: usize) -> String {
    let taken = label.chars().count();
    let indent = " ".repeat(if taken * 2 > width { 2 } else { taken });
    let fold_line = |(number, line): (usize, &str)| {
        let own = line.len() - line.trim_start().len();
        let head = if number == 0 { label } else { &indent };
        fold(head, &format!("{indent}{}", " ".repeat(own)), line, width).join("\n")
    };
    text.lines().enumerate().map(fold_line).collect::<Vec<_>>().join("\n")
}

/// The same for a command of the shell behind a label: lines that are continued end in a backslash, so that it can be copied.
pub fn command(label: &str, text: &str, width: usize) -> String {
    let whole = label.chars().count() + text.chars().count() <= width;
    let place = if whole { width } else { width.saturating_sub(2) };
    fold(label, "  ", text, place).join(" \\\n")
}

/// Puts words behind `head` while they fit in `width`, then behind `indent`. Several spaces in a row stay.
fn fold(head: &str, indent: &str, text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let (mut line, mut is_begun) = (head.to_owned(), false);
    for word in text.split(' ') {
        let more = usize::from(is_begun) + length(word);
        if is_begun && length(&line) + more > width {
            lines.push(line.trim_end().to_owned());
            (line, is_begun) = (indent.to_owned(), false);
            if word.is_empty() {
                continue;
            }
        }
        if is_begun {
            line.push(' ');
        }
        line.push_str(word);
        is_begun = true;
    }
    lines.push(line);
    lines
}

/// How many characters of a text are seen: those of colours are not.
fn length(text: &str) -> usize {
    let mut count = 0;
    let mut is_colour = false;
    for character in text.chars() {
        match character {
            '\x1b' => is_colour = true,
            'm' if is_colour => is_colour = false,
            _ => count += usize::from(!is_colour),
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_between_words() {
        assert_eq!(wrap("one two three", 8), "one two\nthree");
        assert_eq!(wrap("  n p   next one\nlast", 12), "  n p   next\n  one\nlast");
        assert_eq!(wrap("a word-that-is-too-long b", 6), "a\nword-that-is-too-long\nb");
        assert_eq!(wrap("fits", 4), "fits");
        assert_eq!(wrap("", 4), "");
        assert_eq!(wrap("\x1b[31mone\x1b[0m two", 7), "\x1b[31mone\x1b[0m two", "colours take no place");
    }

    #[test]
    fn what_follows_a_label_stands_below_its_text() {
        assert_eq!(behind("help: ", "use a larger one", 14), "help: use a\n      larger\n      one");
        assert_eq!(behind("a long label: ", "use one", 20), "a long label: use\n  one");
    }

    #[test]
    fn a_folded_command_is_still_one() {
        assert_eq!(command("Again: ", "./x bench --rows a,b", 20), "Again: ./x bench \\\n  --rows a,b");
        assert_eq!(command("Again: ", "./x bench", 16), "Again: ./x bench");
    }
}
