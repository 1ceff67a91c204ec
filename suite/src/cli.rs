// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use turnstile::cli::{EXIT_CODES, QemuChoice};

const MUTANTS_HELP: &str = "\
A mutant is the code with one small change: another operator, a body that returns at once; with --orderings an acquire or a \
release that is relaxed, or a fence that is gone. A test should fail for each. cargo-mutants makes the former; it is built the first \
time. A mutant that survives shows a test that is missing, or code that does nothing.

Exit codes: 0 all were caught; 1 some survived; 2 the command line is wrong; 3 something is missing on this machine.";

/// What developers of Turnstile run: the test suite, mutants, counts of lines, and figures in the documentation.
#[derive(Debug, Parser)]
#[command(name = "./x", bin_name = "./x", version, about, after_help = EXIT_CODES)]
#[command(arg_required_else_help = true, max_term_width = 100)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Commands,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Commands {
    /// Run the test suite
    #[command(after_help = EXIT_CODES)]
    Test(Test),
    /// Change the code in small ways, and say which changes no test notices
    #[command(after_long_help = MUTANTS_HELP)]
    Mutants(Mutants),
    /// Count the lines of code of each architecture's image, by layer
    #[command(after_help = EXIT_CODES)]
    Lines(Lines),
    /// Make a Debian package and an archive of what runs without a checkout
    #[command(after_help = EXIT_CODES)]
    Package(Package),
    /// Compare the figures in the documentation with the budgets and the recorded figures
    #[command(after_help = EXIT_CODES)]
    Figures(Figures),
}

/// `test`
#[derive(Debug, Args)]
pub struct Test {
    /// Only stages and tests whose name contains this
    #[arg(long, value_name = "TEXT")]
    pub filter: Option<String>,
    /// Only say what there is
    #[arg(long)]
    pub list: bool,
    /// Everything, with what takes hours: sweeps, a thousand restarts, ten million interrupts, every platform
    #[arg(long)]
    pub long: bool,
    /// Which QEMU is used.
    #[command(flatten)]
    pub qemu: QemuChoice,
}

/// `mutants`
#[derive(Debug, Args)]
pub struct Mutants {
    /// Only this package [default: all of core/ and arch/]
    #[arg(long, value_name = "NAME")]
    pub package: Vec<String>,
    /// Try one mutant in so many
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    pub sample: u32,
    /// Try all mutants: that takes days
    #[arg(long, conflicts_with = "sample")]
    pub all: bool,
    /// Weaken the orderings of the protocols that loom checks, one by one, instead
    #[arg(long, conflicts_with_all = ["sample", "all"])]
    pub orderings: bool,
    /// Only say what would be tried
    #[arg(long)]
    pub list: bool,
}

/// `lines`
#[derive(Debug, Args)]
pub struct Lines {
    /// Put the table into ARCHITECTURE.md
    #[arg(long)]
    pub write: bool,
}

/// `package`
#[derive(Debug, Args)]
pub struct Package {
    /// Where the files go [default: target/package-files]
    #[arg(long, value_name = "FOLDER")]
    pub out: Option<PathBuf>,
}

/// `figures`
#[derive(Debug, Args)]
pub struct Figures {
    /// Write the present figures into the documentation
    #[arg(long)]
    pub write: bool,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }
}
