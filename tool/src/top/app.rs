// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The state of the live screen, and what keys do to it.

use std::time::Duration;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::reading::Reading;
use super::rows::{self, Group, View};

const SHORTEST: Duration = Duration::from_millis(125);
const LONGEST: Duration = Duration::from_secs(64);
/// How far a page key scrolls.
const PAGE: usize = 10;

/// The live screen.
#[derive(Debug)]
pub struct App {
    /// What is shown: a session or a machine.
    pub title: String,
    /// How it is shown.
    pub view: View,
    /// The time between readings.
    pub interval: Duration,
    /// No readings are taken.
    pub paused: bool,
    /// The keys are explained.
    pub help: bool,
    /// The first line of the table that is shown.
    pub offset: usize,
    /// What happened last.
    pub news: Option<String>,
    now: Option<Reading>,
    before: Option<Reading>,
}

/// What a key asks of the main loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// To go on.
    Nothing,
    /// To leave.
    Leave,
}

impl App {
    /// Makes a screen that has nothing to show yet.
    pub fn new(title: String, view: View, interval: Duration) -> Self {
        let interval = interval.clamp(SHORTEST, LONGEST);
        App {
            title,
            view,
            interval,
            paused: false,
            help: false,
            offset: 0,
            news: None,
            now: None,
            before: None,
        }
    }

    /// Takes a reading.
    pub fn read(&mut self, reading: Reading) {
        self.before = self.now.replace(reading);
    }

    /// Whether there is a reading.
    pub fn has_read(&self) -> bool {
        self.now.is_some()
    }

    /// What is to be shown.
    pub fn groups(&self) -> Vec<Group> {
        self.now.as_ref().map_or_else(Vec::new, |now| rows::groups(now, self.before.as_ref(), &self.view))
    }

    /// How much memory the VMs that are shown have, and how much of the pool is free; `None` if nothing is known of it.
    pub fn memory(&self) -> Option<String> {
        let figures: Vec<String> =
            self.now.as_ref()?.memory(self.view.only).map(|(name, text)| format!("{name} {text}")).collect();
        (!figures.is_empty()).then(|| figures.join(" · "))
    }

    /// The name of the only VM that is shown, if it is one.
    pub fn filter(&self) -> Option<&str> {
        let vm = self.now.as_ref()?.vms.get(self.view.only?)?;
        Some(&vm.name)
    }

    /// Shows the next VM that keeps statistics alone, and after the last one all of them.
    fn filter_next(&mut self) {
        let Some(now) = &self.now else { return };
        let first = self.view.only.map_or(0, |only| only + 1);
        self.view.only = (first..now.vms.len()).find(|&vm| now.vms[vm].statistics);
        self.offset = 0;
    }

    /// Takes a key.
    pub fn key(&mut self, key: KeyEvent) -> Ask {
        if key.kind == KeyEventKind::Release {
            return Ask::Nothing;
        }
        if key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL) {
            return Ask::Leave;
        }
        if self.help {
            // Any key ends the help, and leaving takes two.
            self.help = false;
            return Ask::Nothing;
        }
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return Ask::Leave,
            KeyCode::Char('h' | '?') => self.help = true,
            KeyCode::Char('s') => self.view.sort = self.view.sort.next(),
            KeyCode::Char('r') => self.view.reversed = !self.view.reversed,
            KeyCode::Char('f') => self.filter_next(),
            KeyCode::Char('v') => self.view.folded = !self.view.folded,
            KeyCode::Char('t') => self.view.whole_life = !self.view.whole_life,
            KeyCode::Char(' ' | 'p') => self.paused = !self.paused,
            KeyCode::Char('+') => self.interval = (self.interval * 2).min(LONGEST),
            KeyCode::Char('-') => self.interval = (self.interval / 2).max(SHORTEST),
            KeyCode::Down => self.offset += 1,
            KeyCode::PageDown => self.offset += PAGE,
            KeyCode::Up => self.offset = self.offset.saturating_sub(1),
            KeyCode::PageUp => self.offset = self.offset.saturating_sub(PAGE),
            KeyCode::Home => self.offset = 0,
            _ => {}
        }
        Ask::Nothing
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::collector::tests::example;
    use super::super::rows::tests::later;
    use super::*;
    use crate::cli::Sort;

    /// A screen after two readings.
    pub fn app() -> App {
        let mut app = App::new("m-1".into(), View::default(), Duration::from_secs(1));
        assert!(!app.has_read() && app.groups().is_empty() && app.memory().is_none());
        app.read(example());
        app.read(later());
        app
    }

    /// Presses keys.
    pub fn press(app: &mut App, keys: &str) -> Ask {
        let key = |c| KeyEvent::new(KeyCode::Char(c), KeyModifiers::NONE);
        keys.chars().map(|c| app.key(key(c))).last().unwrap()
    }

    #[test]
    fn keys_change_the_view() {
        let mut app = app();
        press(&mut app, "srvt ");
        assert_eq!(app.view.sort, Sort::Count);
        assert!(app.view.reversed && app.view.folded && app.view.whole_life && app.paused);
        press(&mut app, "p+");
        assert_eq!((app.paused, app.interval), (false, Duration::from_secs(2)));
        (0..20).for_each(|_| assert_eq!(press(&mut app, "-"), Ask::Nothing));
        assert_eq!(app.interval, SHORTEST);
    }

    #[test]
    fn filter_goes_round_the_vms_that_keep_statistics() {
        let mut app = app();
        assert_eq!(
            app.memory().unwrap(),
            "linux 64MiB · quiet 6MiB of 512MiB, waits · (pool) 1018MiB of 1GiB free"
        );
        press(&mut app, "f");
        assert_eq!(app.filter(), Some("linux"));
        assert_eq!(app.memory().unwrap(), "linux 64MiB · (pool) 1018MiB of 1GiB free");
        press(&mut app, "f");
        assert_eq!(app.filter(), None, "the other VM keeps none");
    }

    #[test]
    fn leaving() {
        let mut app = app();
        assert_eq!(press(&mut app, "hq"), Ask::Nothing, "the first key ends the help");
        assert_eq!(press(&mut app, "q"), Ask::Leave);
        app.help = true;
        assert_eq!(app.key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)), Ask::Leave);
    }

    #[test]
    fn scrolling_ends_at_the_top() {
        let mut app = app();
        let mut key = |code| {
            app.key(KeyEvent::new(code, KeyModifiers::NONE));
            app.offset
        };
        assert_eq!([key(KeyCode::Up), key(KeyCode::Down), key(KeyCode::PageDown)], [0, 1, 11]);
        assert_eq!([key(KeyCode::PageUp), key(KeyCode::Home)], [1, 0]);
    }
}
