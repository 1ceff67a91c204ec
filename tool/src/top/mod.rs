// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `turnstile top`: what the exits of a running system cost, live.
//!
//! | file | what |
//! |---|---|
//! | `reading` | a reading of all statistics, and its JSON |
//! | `collector` | puts a reading together from messages |
//! | `desk` | those who wait for a reading, where a machine runs |
//! | `source` | where readings come from |
//! | `rows`, `cells` | from readings to figures, and from figures to text |
//! | `app`, `screen` | the live screen: what keys do, what is drawn |
//! | `live`, `once` | the two ways to end: by a key, or after one reading |

mod app;
mod cells;
pub mod collector;
pub mod desk;
mod live;
mod once;
pub mod reading;
pub(crate) mod rows;
mod screen;
mod source;

use std::sync::mpsc::{Sender, channel};

use crate::cli;
use crate::config;
use crate::console;
use crate::control::find::find;
use crate::failure::{Failure, Result};
use crate::layout::Layout;
use crate::machine::{self, stem};
use crate::session::{Notice, Session};
use crate::setup;
use rows::View;
use source::{Machine, Source, Update};

/// Anything that is waited for.
enum Event {
    Machine(Notice),
    Update(Update),
    Terminal(ratatui::crossterm::event::Event),
    Signal(i32),
}

impl From<Notice> for Event {
    fn from(notice: Notice) -> Self {
        Event::Machine(notice)
    }
}

impl From<Update> for Event {
    fn from(update: Update) -> Self {
        Event::Update(update)
    }
}

/// `top`: shows the statistics of a machine that it starts, or of a running session.
pub fn top(layout: &Layout, options: &cli::Top) -> Result<()> {
    if !options.once && !console::interactive() {
        return Err(Failure::usage("top shows a live screen, and this is not a terminal")
            .help("use --once for one reading, or --once --json for a program"));
    }
    let (sender, events) = channel();
    let (title, source) = open(layout, options, &sender)?;
    let view = View { sort: options.sort, ..View::default() };
    console::watch_signals(sender.clone(), Event::Signal)?;
    match options.once {
        true => once::once(source, &events, options, view),
        false => live::live(source, sender, &events, options, title, view),
    }
}

/// Starts the machine, or connects to the session.
fn open(layout: &Layout, options: &cli::Top, sender: &Sender<Event>) -> Result<(String, Source)> {
    let Some(file) = &options.file else {
        let client = find(layout, options.session.as_deref(), "turnstile top --session NAME")?;
        return Ok((client.machine.clone(), Source::session(client, sender.clone())));
    };
    let mut loaded = config::load(layout, file)?;
    loaded.keep_statistics();
    let config = loaded.accept()?;
    let names: Vec<String> = config.vms.iter().map(|vm| vm.name.value.clone()).collect();
    if let Some(vm) = options.vm.as_ref().filter(|vm| !names.contains(vm)) {
        return Err(no_such_vm(vm, &names));
    }
    machine::check_hypervisor(options.image.as_deref(), config.machine.board.isa())?;
    let qemu = setup::qemu::ensure(layout, config.machine.board.isa(), options.qemu.program.as_deref())?;
    let folder = layout.bundles().join(format!("top-{}", stem(file)));
    let boot = machine::prepare(layout, &loaded, &folder, options.image.as_deref())?;
    let session = Session::start(&boot, &qemu.path, sender.clone())?;
    Ok((stem(file), Source::Machine(Box::new(Machine::new(session, names)))))
}

/// Finds the VM that the user named in a reading.
fn find_vm(reading: &reading::Reading, wanted: Option<&String>) -> Result<Option<usize>> {
    let Some(wanted) = wanted else { return Ok(None) };
    let names: Vec<String> = reading.vms.iter().map(|vm| vm.name.clone()).collect();
    let place = names.iter().position(|name| name == wanted);
    place.map(Some).ok_or_else(|| no_such_vm(wanted, &names))
}

fn no_such_vm(wanted: &str, names: &[String]) -> Failure {
    Failure::usage(format!("there is no VM `{wanted}`")).help(format!("the VMs are: {}", names.join(", ")))
}
