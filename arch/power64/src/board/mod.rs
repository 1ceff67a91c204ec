// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the machine has beside its CPUs.
//!
//! | file | what |
//! |---|---|
//! | `discover` | what machine this is |
//! | `opal` | its firmware's services |
//! | `pci` | its PCI host bridges, as its firmware drives them |
//! | `uart`, `power`, `clock` | the serial line; how it is powered off; what time it is |
//! | `mitigation` | what exits and entries do against speculation, where that is needed |

pub mod clock;
pub mod discover;
pub mod mitigation;
pub mod opal;
pub mod pci;
pub mod power;
pub mod uart;
