// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The command `turnstile`: builds virtual machines, runs them, and measures what every exit costs.
//!
//! It knows the formats that it shares with the hypervisor (`core/bundle`, `core/link`, `core/machine`) and
//! nothing of any architecture's code.

/// Takes the place of the standard library's in every module below: that one panics when nobody reads any more.
macro_rules! println {
    ($($line:tt)*) => { $crate::ui::print_line(format_args!($($line)*)) };
}

mod batch;
mod bench;
mod card;
mod cli;
mod commands;
mod config;
mod console;
mod demo;
mod exits;
mod failure;
mod isa;
mod layout;
mod machine;
mod meter;
mod qemu;
mod session;
mod setup;
mod test;
mod top;
mod ui;

use std::process::ExitCode;

use clap::Parser;
use cli::{Cli, Commands};

fn main() -> ExitCode {
    ui::silence_stream_panics();
    let code = std::panic::catch_unwind(command_line).unwrap_or_else(|panic| {
        if !ui::stream_failed() {
            std::panic::resume_unwind(panic);
        }
        ExitCode::FAILURE
    });
    match ui::lost_output() {
        None => code,
        Some(failure) => {
            failure.print();
            // What went wrong before says more.
            if code == ExitCode::SUCCESS { failure.exit_code() } else { code }
        }
    }
}

/// Does what the command line says.
fn command_line() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        // For --help (0) and for a wrong command line (2).
        Err(text) => {
            let printed = text.print();
            if !text.use_stderr() {
                ui::printed(printed);
            }
            return u8::try_from(text.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from);
        }
    };
    match execute(&cli.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.print();
            failure.exit_code()
        }
    }
}

fn execute(command: &Commands) -> failure::Result<()> {
    let layout = layout::Layout::find()?;
    match command {
        Commands::Demo(options) => demo::demo(&layout, options),
        Commands::Run(options) => commands::run(&layout, options),
        Commands::Top(options) => top::top(&layout, options),
        Commands::Bench(options) => bench::bench(&layout, options),
        Commands::Exits(options) => exits::exits(&layout, options),
        Commands::Meter(options) => meter::command::meter(&layout, options),
        Commands::Check(options) => commands::check(&layout, options),
        Commands::Build(options) => commands::build(&layout, options),
        Commands::Test(options) => test::test(&layout, options),
        Commands::Doctor(options) => setup::doctor::doctor(&layout, options.json),
    }
}
