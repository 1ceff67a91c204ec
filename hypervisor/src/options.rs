// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The hypervisor's command line: words of the form `key=value`.

use crate::arch::boot::fault::Provoked;
use crate::line::Mode;
use crate::machine;

/// What the command line says.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How the serial line is used: `link=framed` or `link=plain` (the default).
    pub line: Mode,
    /// A fault of the hypervisor itself to provoke, to see that it is caught and reported: at boot
    /// `provoke=write-to-code`, `run-data`, `stack-overflow` or `panic`, and `read-guest` when the first VM runs,
    /// on another CPU than the boot CPU. `stray`: services tell devices that are behind an IOMMU addresses that are not theirs.
    /// `dry`: services find a pool empty every second time that they need memory from there.
    pub provoke: Option<Provoked>,
    /// Whether it is to say what its start and those of VMs take: `boot-times`.
    pub times: bool,
}

#[cfg(feature = "ablation")]
const WITHOUT: &str = "without=";

/// The techniques to do without, to measure what they are worth: `without=NAME,…`, `without=all`, or `without=none`,
/// which takes nothing off and shows what the switches themselves cost.
#[cfg(feature = "ablation")]
pub fn without(line: &str) -> Option<&str> {
    line.split_ascii_whitespace().find_map(|word| word.strip_prefix(WITHOUT))
}

/// Parses the command line. Words that mean nothing are handed to `unknown`.
pub fn parse<'a>(line: &'a str, mut unknown: impl FnMut(&'a str)) -> Options {
    let mut options = Options { line: Mode::Plain, provoke: None, times: false };
    for word in line.split_ascii_whitespace() {
        match word {
            "link=framed" => options.line = Mode::Framed,
            "link=plain" => options.line = Mode::Plain,
            "provoke=write-to-code" => options.provoke = Some(Provoked::WriteToCode),
            "provoke=run-data" => options.provoke = Some(Provoked::RunData),
            "provoke=stack-overflow" => options.provoke = Some(Provoked::StackOverflow),
            "provoke=read-guest" => options.provoke = Some(Provoked::ReadGuest),
            "provoke=stray" => options.provoke = Some(Provoked::Stray),
            "provoke=dry" => options.provoke = Some(Provoked::Dry),
            "provoke=panic" => options.provoke = Some(Provoked::Panic),
            "boot-times" => options.times = true,
            _ if machine::is_boot_word(word) => {}
            // Read by `without`.
            #[cfg(feature = "ablation")]
            _ if word.starts_with(WITHOUT) => {}
            _ => unknown(word),
        }
    }
    options
}
