// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The command line, as far as it is about a PC.

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use turnstile_bundle::Feature;

/// What kind of local APIC the guest is offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Apic {
    /// The page of registers alone.
    Xapic,
    /// The registers as MSRs, too.
    X2apic,
}

/// Reads the name of a part of KVM's paravirtual interface.
fn part() -> impl TypedValueParser<Value = Feature> {
    PossibleValuesParser::new(Feature::ALL.map(Feature::name))
        .try_map(|name| Feature::from_name(&name).ok_or("no such part"))
}

/// What is particular to a PC.
#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub struct Pc {
    /// The guest's memory in MiB
    #[arg(long, value_name = "MIB", default_value_t = 64, value_parser = clap::value_parser!(u64).range(16..=2048))]
    pub memory: u64,
    /// The guest's initial RAM disk
    #[arg(long, value_name = "FILE")]
    pub initrd: Option<PathBuf>,
    /// The local APIC that the guest is offered
    #[arg(long, value_enum, default_value = "x2apic")]
    pub apic: Apic,
    /// Offer only these parts of KVM's paravirtual interface; by default all
    #[arg(long, value_parser = part(), value_delimiter = ',', value_name = "PART,…")]
    pub paravirt: Option<Vec<Feature>>,
    /// Offer nothing of KVM's paravirtual interface
    #[arg(long, conflicts_with = "paravirt")]
    pub no_paravirt: bool,
    /// A vCPU that halts gives its CPU away at once: KVM does not poll
    #[arg(long)]
    pub no_halt_poll: bool,
}

impl Pc {
    /// The bits of CPUID 4000_0001 EAX that the guest may see.
    pub fn features(&self) -> u32 {
        match (&self.paravirt, self.no_paravirt) {
            (_, true) => 0,
            (Some(some), _) => some.iter().fold(0, |bits, feature| bits | feature.bits()),
            (None, _) => Feature::ALL.iter().fold(0, |bits, feature| bits | feature.bits()),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::options::Options;

    fn parse(words: &[&str]) -> Result<Pc, clap::Error> {
        Options::try_parse_from(["/init", "--guest=/guest"].iter().chain(words)).map(|options| options.pc)
    }

    #[test]
    fn all_parts_are_offered_unless_some_are_named() {
        let all = parse(&[]).unwrap();
        assert_eq!((all.apic, all.memory, all.features()), (Apic::X2apic, 64, 0x0100_1ae9));
        assert_eq!(parse(&["--paravirt=clock,eoi"]).unwrap().features(), 0x0100_0049);
        assert_eq!(parse(&["--no-paravirt"]).unwrap().features(), 0);
        assert_eq!(parse(&["--apic=xapic"]).unwrap().apic, Apic::Xapic);
    }

    #[test]
    fn nonsense_is_refused() {
        for words in [&["--paravirt=everything"][..], &["--apic=8259"], &["--memory=0"]] {
            assert!(parse(words).is_err(), "{words:?}");
        }
        assert!(parse(&["--no-paravirt", "--paravirt=eoi"]).is_err());
    }
}
