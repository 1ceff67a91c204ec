// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is drawn.

use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Block, Clear, Paragraph, Row, Table, Wrap};

use super::app::App;
use super::cells::{COLUMNS, cells};
use super::rows::{Figures, Group};

/// The cells of a bar.
const BAR: usize = 12;
/// The widths of the columns, the bar's last.
const WIDTHS: [u16; 8] = [22, 8, 8, 10, 10, 10, 9, BAR as u16];
/// The columns in the order in which they give way where they have no place.
const GIVE_WAY: [usize; 6] = [7, 4, 2, 5, 6, 3];
const HELP: &[(&str, &str)] = &[
    ("s", "sort by rate, count, mean, share, reason"),
    ("r", "the other way round"),
    ("f", "only the next VM; after the last one, all"),
    ("v", "add the vCPUs of a VM up, or not"),
    ("t", "costs since the VM's start, or since the last reading"),
    ("space p", "pause"),
    ("+ -", "longer, shorter interval"),
    ("↑ ↓", "scroll; also page up, page down, home"),
    ("q Esc", "leave"),
    ("", ""),
    ("exits/s", "by the machine's own counter"),
    ("+ name", "not an exit, but an event that is also counted"),
    ("* name", "a service of the VM: the exits that it has handled"),
    ("share", "of the vCPU's time; the bar is logarithmic"),
    ("p50 p99", "from a histogram of powers of two"),
];

/// Draws everything.
pub fn draw(frame: &mut Frame<'_>, app: &App) {
    let figures = app.memory();
    let lines = [1, u16::from(figures.is_some())].map(Constraint::Length);
    let [title, memory, table, status] =
        Layout::vertical([lines[0], lines[1], Constraint::Min(1), Constraint::Length(1)]).areas(frame.area());
    frame.render_widget(heading(app), title);
    frame.render_widget(Paragraph::new(format!(" memory: {}", figures.unwrap_or_default())), memory);
    if app.has_read() {
        draw_table(frame, table, app);
    } else {
        frame.render_widget(Paragraph::new("waiting for the machine …").alignment(Alignment::Center), table);
    }
    let news = app.news.as_deref().unwrap_or("h help · q quit");
    frame.render_widget(Paragraph::new(news).dim(), status);
    if app.help {
        draw_help(frame);
    }
}

fn heading(app: &App) -> Paragraph<'_> {
    let mut words = vec![" turnstile top ".bold().reversed(), Span::raw(format!(" {}", app.title))];
    let order = if app.view.reversed { " reversed" } else { "" };
    let costs = if app.view.whole_life { "since the start" } else { "since the last reading" };
    let interval = app.interval.as_secs_f64();
    words.push(Span::raw(format!(
        " · by {}{order} · costs {costs} · every {interval} s",
        app.view.sort.name()
    )));
    words.extend(app.filter().map(|vm| Span::raw(format!(" · only {vm}")).yellow()));
    words.extend(app.paused.then(|| " · paused".yellow()));
    Paragraph::new(Line::from(words))
}

fn draw_table(frame: &mut Frame<'_>, area: Rect, app: &App) {
    let shown = columns(area.width);
    let rows: Vec<Row<'_>> = app.groups().iter().flat_map(|group| group_rows(group, &shown)).collect();
    if rows.is_empty() {
        let text = "no VM that is shown keeps statistics: start it by `turnstile run --statistics`";
        let text = Paragraph::new(text).alignment(Alignment::Center).wrap(Wrap { trim: true });
        return frame.render_widget(text, area);
    }
    // The last line can be scrolled to the top and no further.
    let offset = app.offset.min(rows.len().saturating_sub(1));
    let header = Row::new(
        shown.iter().map(|&place| align(place, COLUMNS.get(place).copied().unwrap_or_default().to_owned())),
    );
    let widths = shown.iter().filter_map(|&place| WIDTHS.get(place)).map(|width| Constraint::Length(*width));
    let table = Table::new(rows.into_iter().skip(offset), widths).header(header.bold().underlined());
    frame.render_widget(table, area);
}

/// The columns that have a place in this width, as a whole.
fn columns(width: u16) -> Vec<usize> {
    let mut shown: Vec<usize> = (0..WIDTHS.len()).collect();
    for place in GIVE_WAY {
        let taken: u16 = shown.iter().filter_map(|&place| WIDTHS.get(place)).map(|width| width + 1).sum();
        // The bar may be cut.
        if taken > width + 1 {
            shown.retain(|other| *other != place);
        }
    }
    shown
}

/// The lines of a vCPU: all its exits, and those of each reason.
fn group_rows(group: &Group, shown: &[usize]) -> Vec<Row<'static>> {
    let vcpu = group.vcpu.map_or(String::new(), |vcpu| format!(" vcpu {vcpu}"));
    let lives = if group.boots > 1 { format!(" #{}", group.boots) } else { String::new() };
    let paused = if group.paused { " paused" } else { "" };
    let head = row(format!("{}{vcpu}{lives}{paused}", group.vm), &group.all, shown)
        .style(Style::new().bold().fg(Color::Cyan));
    let lines = group.lines().map(|(name, figures)| row(format!("  {name}"), figures, shown));
    std::iter::once(head).chain(lines).collect()
}

fn row(name: String, figures: &Figures, shown: &[usize]) -> Row<'static> {
    let cells = std::iter::once(name).chain(cells(figures)).chain([bar(figures.share)]).enumerate();
    Row::new(cells.filter(|(place, _)| shown.contains(place)).map(|(place, text)| align(place, text)))
}

/// Numbers are aligned to the right, names and bars to the left.
fn align(place: usize, text: String) -> Text<'static> {
    let left = place == 0 || place >= COLUMNS.len();
    Text::from(text).alignment(if left { Alignment::Left } else { Alignment::Right })
}

/// A bar for a share: each cell is a factor of about 2.2, from 0.01 % to everything.
fn bar(share: Option<f64>) -> String {
    let part = share.filter(|share| *share > 1e-4).map_or(0.0, |share| (share.log10() + 4.0) / 4.0);
    "█".repeat((part * BAR as f64).round() as usize)
}

fn draw_help(frame: &mut Frame<'_>) {
    let lines: Vec<Line<'_>> = HELP
        .iter()
        .map(|(key, what)| Line::from(vec![format!(" {key:>8}  ").bold(), (*what).into()]))
        .collect();
    let area = frame.area();
    let (width, height) = (area.width.min(68), area.height.min(lines.len() as u16 + 2));
    let place = Rect::new((area.width - width) / 2, (area.height - height) / 2, width, height);
    frame.render_widget(Clear, place);
    let text = Paragraph::new(lines).wrap(Wrap { trim: false });
    frame.render_widget(text.block(Block::bordered().title(" keys and words ")), place);
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::super::app::tests::{app, press};
    use super::*;

    fn drawn(app: &App, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, app)).unwrap();
        let buffer = terminal.backend().buffer();
        let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        (0..height).map(|y| line(y).trim_end().to_owned() + "\n").collect()
    }

    #[test]
    fn figures_stand_below_their_columns() {
        let text = drawn(&app(), 100, 12);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].contains("m-1 · by rate · costs since the last reading · every 1 s"), "{text}");
        assert!(
            lines[1].starts_with(" memory: linux 64MiB · quiet 6MiB of 512MiB, waits · (pool) 1018MiB"),
            "{text}"
        );
        assert!(lines[2].starts_with("reason"), "{text}");
        assert!(lines[3].starts_with("linux vcpu 0 #2"), "{text}");
        let calls = lines[7];
        assert_eq!(
            calls.split_whitespace().collect::<Vec<_>>()[..6],
            ["hypercall", "2000", "2003", "100", "ns", "96"]
        );
        assert!(calls.trim_end().ends_with("0.02 % █"), "{text}");
        let end = |name: &str| lines[2].find(name).unwrap() + name.len();
        assert_eq!(
            (end("exits/s"), end("mean")),
            (calls.find("2000").unwrap() + 4, calls.find("100 ns").unwrap() + 6)
        );
    }

    #[test]
    fn every_size_is_drawn() {
        let mut app = app();
        press(&mut app, "h");
        app.offset = 1000;
        for (width, height) in [(1, 1), (10, 2), (40, 5), (300, 100)] {
            drawn(&app, width, height);
        }
        assert!(drawn(&app, 100, 30).contains("only the next VM"));
        app.help = false;
        assert!(drawn(&app, 100, 10).contains("* console crashes"), "the last line stays");
    }

    #[test]
    fn columns_give_way_as_a_whole() {
        for (width, shown) in [(200, 8), (100, 8), (80, 6), (40, 2), (10, 2)] {
            assert_eq!(columns(width).len(), shown, "{width}");
        }
        for width in [40, 80, 100, 200] {
            let text = drawn(&app(), width, 12);
            let calls =
                text.lines().filter(|line| line.contains("hypercall")).find(|line| line.contains(" 2000"));
            let calls = calls.unwrap_or_else(|| panic!("{width}\n{text}"));
            assert_eq!(calls.contains("0.02 %"), width >= 80, "{width}\n{text}");
            assert_eq!(calls.contains("100 ns"), width >= 80, "{width}\n{text}");
        }
    }

    #[test]
    fn bars_are_logarithmic() {
        let cells =
            [None, Some(0.0), Some(1e-4), Some(0.01), Some(1.0)].map(|share| bar(share).chars().count());
        assert_eq!(cells, [0, 0, 0, 6, 12]);
    }
}
