// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What developers of Turnstile run: the test suite, mutants, counts of lines, and figures in the documentation. `./x` passes their commands on to it.

/// Takes the place of the standard library's in every module below: that one panics when nobody reads any more.
macro_rules! println {
    ($($line:tt)*) => { turnstile::ui::print_line(format_args!($($line)*)) };
}

mod ablation;
mod balloon;
mod bench_errors;
mod benching;
mod boards;
mod boards_power;
mod boards_x86;
mod bochs;
mod checks;
mod chosen;
#[cfg(test)]
mod claims;
mod cli;
mod clobbers;
mod console;
mod control;
mod debian;
mod disks;
mod drives;
mod engine;
mod entropy;
mod eoi;
mod features_power;
mod figures;
mod firmware;
mod flat;
mod flood;
mod gicv2;
mod gpt;
mod guarded;
mod guarded_power;
mod guarded_x86;
mod guests;
mod guests_power;
mod guests_x86;
mod host;
mod host_named;
mod host_run;
mod hostile;
mod hostile_x86;
mod hour;
mod idle;
mod image;
mod image_power;
mod image_x86;
mod layers;
mod lines;
mod linux;
mod linux_devices;
mod linux_power;
mod linux_x86;
mod log;
mod measuring;
mod metering;
mod mitigations;
mod mitigations_power;
mod modes;
mod mutants;
mod networks;
mod package;
mod pause;
mod peers;
mod plain;
mod player;
mod power;
mod programs;
mod pulse;
mod reach;
mod refusals;
mod refusals_x86;
mod refused;
mod registers;
mod registers_power;
mod registers_x86;
mod report;
mod run;
mod scale;
mod scenario;
mod scenarios;
mod server;
mod services;
mod services_arm64;
mod shares;
mod sharing;
mod sharing_power;
mod sources;
mod spared;
mod statistics;
mod stuck;
mod tool;
mod uplinks;
mod victims;
mod weight;
mod windows;
mod work;

use std::process::ExitCode;

use cli::{Cli, Commands};
use turnstile::failure::Result;
use turnstile::layout::Layout;

fn main() -> ExitCode {
    turnstile::start::start(execute)
}

fn execute(cli: &Cli) -> Result<()> {
    let layout = Layout::find()?;
    match &cli.command {
        Commands::Test(options) => run::test(&layout, options),
        Commands::Mutants(options) => mutants::mutants(&layout, options),
        Commands::Lines(options) => lines::lines(&layout, options),
        Commands::Package(options) => package::package(&layout, options),
        Commands::Figures(options) => figures::figures(&layout, options),
    }
}
