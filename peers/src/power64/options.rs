// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The command line, as far as it is about a partition.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// The interrupt controller of the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Controller {
    /// XIVE, which the guest drives itself.
    Xive,
    /// XICS, which it drives by calls.
    Xics,
}

/// What is particular to a partition.
#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub struct Partition {
    /// The guest's memory in MiB
    #[arg(long, value_name = "MIB", default_value_t = 64, value_parser = clap::value_parser!(u64).range(16..=2048))]
    pub memory: u64,
    /// The guest's initial RAM disk
    #[arg(long, value_name = "FILE")]
    pub initrd: Option<PathBuf>,
    /// The guest's interrupt controller
    #[arg(long, value_enum, default_value = "xive")]
    pub interrupts: Controller,
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Alone {
        #[command(flatten)]
        partition: Partition,
    }

    #[test]
    fn a_partition_has_a_controller() {
        let parse =
            |words: &[&str]| Alone::try_parse_from(["x"].iter().chain(words)).map(|all| all.partition);
        let usual = parse(&[]).unwrap();
        assert_eq!((usual.memory, usual.interrupts), (64, Controller::Xive));
        assert_eq!(parse(&["--interrupts=xics"]).unwrap().interrupts, Controller::Xics);
        assert!(parse(&["--interrupts=gic"]).is_err() && parse(&["--memory=0"]).is_err());
    }
}
