// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The machines on which Turnstile is measured, each with the mode that it has there.

use super::document::Document;

/// A processor model, an interrupt controller and a mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Platform {
    /// QEMU virt, -cpu max, GICv3; the hypervisor with VHE
    #[default]
    VheGicv3,
    /// QEMU virt, -cpu cortex-a57, GICv3; the hypervisor without VHE
    NvheGicv3,
}

impl Platform {
    /// Its name on the command line and in `bench/budgets.toml`.
    pub fn name(self) -> &'static str {
        match self {
            Platform::VheGicv3 => "vhe-gicv3",
            Platform::NvheGicv3 => "nvhe-gicv3",
        }
    }

    /// QEMU's name of the processor model.
    pub fn cpu(self) -> &'static str {
        match self {
            Platform::VheGicv3 => "max",
            Platform::NvheGicv3 => "cortex-a57",
        }
    }

    /// Turnstile's mode there.
    pub fn mode(self) -> &'static str {
        match self {
            Platform::VheGicv3 => "vhe",
            Platform::NvheGicv3 => "nvhe",
        }
    }

    /// The machine, for people.
    pub fn machine(self) -> String {
        format!("qemu-virt {} gicv3", self.cpu())
    }

    /// Its section in `bench/budgets.toml`, for VMs with or without statistics of their exits.
    pub fn budgeted(self, statistics: bool) -> String {
        let more = if statistics { "-statistics" } else { "" };
        format!("{}{more}", self.name())
    }

    /// Says in a document of Turnstile's figures alone where they were taken.
    pub fn label(self, document: &mut Document) {
        document.platform = self.machine();
        for figure in &mut document.rows {
            figure.platform = self.machine();
            figure.mode = self.mode().to_owned();
        }
        for info in &mut document.subjects {
            info.mode = self.mode().to_owned();
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;
    use crate::bench::samples;
    use crate::bench::subjects::Subject;

    #[test]
    fn names_are_those_of_the_command_line() {
        for platform in Platform::value_variants() {
            assert_eq!(platform.to_possible_value().unwrap().get_name(), platform.name());
        }
        assert_eq!(Platform::default().machine(), crate::bench::PLATFORM);
        assert_eq!(Platform::default().mode(), Subject::Turnstile.mode());
    }

    #[test]
    fn documents_say_where_their_figures_were_taken() {
        let mut document = samples::document();
        Platform::NvheGicv3.label(&mut document);
        assert!(document.rows.iter().all(|figure| figure.platform == "qemu-virt cortex-a57 gicv3"));
        assert!(document.subjects.iter().all(|info| info.mode == "nvhe"));
    }
}
