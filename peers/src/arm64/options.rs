// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The command line, as far as it is about a machine of Arm's.

use std::path::PathBuf;

use clap::Args;

/// What is particular to Armv8-A.
#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub struct Board {
    /// The guest's memory in MiB
    #[arg(long, value_name = "MIB", default_value_t = 16, value_parser = clap::value_parser!(u64).range(16..=2048))]
    pub memory: u64,
    /// The guest's initial RAM disk. A guest with one is an operating system: the UART interrupts it. The measuring guests poll
    #[arg(long, value_name = "FILE")]
    pub initrd: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Alone {
        #[command(flatten)]
        board: Board,
    }

    #[test]
    fn measuring_guests_have_little_memory_and_no_disk() {
        let parse = |words: &[&str]| Alone::try_parse_from(["x"].iter().chain(words)).map(|all| all.board);
        let usual = parse(&[]).unwrap();
        assert_eq!((usual.memory, usual.initrd), (16, None));
        let linux = parse(&["--memory=512", "--initrd=/initrd"]).unwrap();
        assert_eq!((linux.memory, linux.initrd), (512, Some("/initrd".into())));
        assert!(parse(&["--memory=0"]).is_err());
    }
}
