// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The command `turnstile`: builds virtual machines, runs them, and measures what every exit costs.
//!
//! It knows the formats that it shares with the hypervisor (`core/bundle`, `core/link`, `core/machine`) and
//! nothing of any architecture's code.

mod batch;
mod bench;
mod cli;
mod commands;
mod config;
mod console;
mod demo;
mod failure;
mod layout;
mod machine;
mod qemu;
mod session;
mod setup;
mod test;
mod ui;

use std::process::ExitCode;

use clap::Parser;
use cli::{Cli, Commands};

fn main() -> ExitCode {
    // Clap ends the process itself for --help (0) and for a wrong command line (2).
    let cli = Cli::parse();
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
        Commands::Bench(options) => bench::bench(&layout, options),
        Commands::Check(options) => commands::check(&layout, options),
        Commands::Build(options) => commands::build(&layout, options),
        Commands::Test(options) => test::test(&layout, options),
        Commands::Doctor(options) => setup::doctor::doctor(&layout, options.json),
    }
}
