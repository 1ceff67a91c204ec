// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The command `turnstile`: builds virtual machines, runs them, and measures what every exit costs.
//!
//! It knows the formats that it shares with the hypervisor (`core/bundle`, `core/link`, `core/machine`) and
//! nothing of any architecture's code. The test suite (`suite/`) uses it as a library.

/// Takes the place of the standard library's in every module below: that one panics when nobody reads any more.
macro_rules! println {
    ($($line:tt)*) => { $crate::ui::print_line(format_args!($($line)*)) };
}

pub mod batch;
pub mod bench;
pub mod card;
pub mod cli;
mod commands;
pub mod config;
mod console;
pub mod control;
mod demo;
mod drives;
pub mod exits;
pub mod failure;
mod gather;
pub mod isa;
pub mod layout;
mod log;
pub mod machine;
mod memory;
pub mod meter;
mod metrics;
mod ports;
pub mod prose;
pub mod qemu;
pub mod session;
pub mod setup;
pub mod sheet;
pub mod start;
pub mod style;
pub mod top;
pub mod ui;
pub mod usage;
mod width;

use cli::{Cli, Commands};
use failure::Result;
use layout::Layout;

/// Does what the command line says.
pub fn execute(cli: &Cli) -> Result<()> {
    let layout = Layout::find()?;
    match &cli.command {
        Commands::Demo(options) => demo::demo(&layout, options),
        Commands::Run(options) => commands::run(&layout, options),
        Commands::List(options) => control::list::list(&layout, options),
        Commands::Start(options) => control::power::start(&layout, options),
        Commands::Stop(options) => control::power::stop(&layout, options),
        Commands::Restart(options) => control::power::restart(&layout, options),
        Commands::KillService(options) => control::power::kill_service(&layout, options),
        Commands::Balloon(options) => control::power::balloon(&layout, options),
        Commands::Pause(options) => control::power::pause(&layout, options),
        Commands::Resume(options) => control::power::resume(&layout, options),
        Commands::Console(options) => console::console(&layout, options),
        Commands::Port(options) => ports::port(&layout, options),
        Commands::Logs(options) => console::logs(&layout, options),
        Commands::Top(options) => top::top(&layout, options),
        Commands::Bench(options) => bench::bench(&layout, options),
        Commands::Exits(options) => exits::exits(&layout, options),
        Commands::Meter(options) => meter::command::meter(&layout, options),
        Commands::Check(options) => commands::check(&layout, options),
        Commands::Build(options) => commands::build(&layout, options),
        Commands::Doctor(options) => setup::doctor::doctor(&layout, options.json),
    }
}
