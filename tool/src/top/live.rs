// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The live screen on the terminal.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use ratatui::DefaultTerminal;
use ratatui::crossterm::event;

use super::app::{App, Ask};
use super::rows::View;
use super::source::{Source, Update, refuse_empty};
use super::{Event, find_vm, screen};
use crate::cli;
use crate::failure::{Context, Failure, Result};

/// The longest time without a look at the clock.
const TICK: Duration = Duration::from_millis(100);

/// Holds the terminal; dropping it restores what was before, and so does a panic.
struct Screen(DefaultTerminal);

impl Screen {
    fn enter() -> Result<Self> {
        ratatui::try_init().map(Screen).context(|| "cannot use the terminal".into())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// Shows readings until the user leaves.
pub fn live(
    source: Source,
    sender: Sender<Event>,
    events: &Receiver<Event>,
    options: &cli::Top,
    title: String,
    view: View,
) -> Result<()> {
    let app = App::new(title, view, options.interval);
    let mut live = Live { app, source, due: Some(Instant::now()), vm: options.vm.clone(), changed: true };
    let mut screen = Screen::enter()?;
    watch_terminal(sender);
    loop {
        live.ask_if_due();
        if std::mem::take(&mut live.changed) {
            let app = &live.app;
            screen.0.draw(|frame| screen::draw(frame, app)).context(|| "cannot draw".into())?;
        }
        if live.wait(events)? == Ask::Leave {
            return Ok(());
        }
    }
}

/// Sends keys and changes of size to the main loop. The thread ends with the process.
fn watch_terminal(sender: Sender<Event>) {
    std::thread::spawn(move || {
        while let Ok(event) = event::read() {
            if sender.send(Event::Terminal(event)).is_err() {
                return;
            }
        }
        // A terminal that cannot be read has gone away.
        let _ = sender.send(Event::Signal(signal_hook::consts::SIGHUP));
    });
}

/// The screen and where its readings come from.
struct Live {
    app: App,
    source: Source,
    /// When the next reading is due; `None` while one is under way, or if there will be none.
    due: Option<Instant>,
    /// The VM that the user named, until it is looked for.
    vm: Option<String>,
    /// Something happened since the screen was drawn.
    changed: bool,
}

impl Live {
    fn ask_if_due(&mut self) {
        if !self.app.paused && self.due.is_some_and(|due| due <= Instant::now()) {
            self.source.ask();
            self.due = None;
        }
    }

    /// Waits for something to happen, and takes all that has happened.
    fn wait(&mut self, events: &Receiver<Event>) -> Result<Ask> {
        let left = self.due.map_or(TICK, |due| due.saturating_duration_since(Instant::now()));
        let mut event = events.recv_timeout(left.min(TICK));
        loop {
            match event {
                Ok(event) => {
                    if self.take(event)? == Ask::Leave {
                        return Ok(Ask::Leave);
                    }
                }
                Err(RecvTimeoutError::Timeout) => return Ok(Ask::Nothing),
                Err(RecvTimeoutError::Disconnected) => return Ok(Ask::Leave),
            }
            event = events.try_recv().map_err(|_| RecvTimeoutError::Timeout);
        }
    }

    fn take(&mut self, event: Event) -> Result<Ask> {
        self.changed = true;
        let update = match event {
            Event::Terminal(event::Event::Key(key)) => return Ok(self.app.key(key)),
            // The next frame is drawn in the new size.
            Event::Terminal(_) => None,
            Event::Signal(signal) => return Err(Failure::signal(signal)),
            Event::Machine(notice) => self.source.notice(&notice),
            Event::Update(update) => Some(update),
        };
        match update {
            Some(Update::Reading(reading)) => {
                if !self.app.has_read() {
                    refuse_empty(&reading)?;
                    self.app.view.only = find_vm(&reading, self.vm.take().as_ref())?;
                }
                self.app.read(reading);
                self.due = Some(Instant::now() + self.app.interval);
            }
            Some(Update::News(news)) => self.app.news = Some(news),
            Some(Update::Ended(Some(failure))) => return Err(failure),
            Some(Update::Ended(None)) => {
                self.due = None;
                self.app.news = Some("the machine has ended: q leaves".to_owned());
            }
            None => {}
        }
        Ok(Ask::Nothing)
    }
}
