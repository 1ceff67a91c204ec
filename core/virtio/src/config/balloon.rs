// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory balloons (section 5.5). A page has 4096 bytes.

use super::bytes::Fields;
use super::space::{Configuration, SPACE};
use crate::features::Features;

/// The configuration of a balloon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Balloon {
    /// How many pages the device asks for.
    pub wanted: u32,
    /// How many pages the driver has given. The driver writes it.
    pub actual: u32,
    /// A command for hints of free pages (FREE_PAGE_HINT).
    pub free_page_hint: u32,
    /// What pages that are given are filled with (PAGE_POISON). The driver writes it.
    pub poison: u32,
}

impl Balloon {
    /// Pages are told to the device before they are used again.
    pub const MUST_TELL_HOST: Features = Features::bit(0);
    /// There is a queue for statistics.
    pub const STATS_VQ: Features = Features::bit(1);
    /// The balloon deflates when memory is short.
    pub const DEFLATE_ON_OOM: Features = Features::bit(2);
    /// The driver hints at free pages.
    pub const FREE_PAGE_HINT: Features = Features::bit(3);
    /// `poison` holds.
    pub const PAGE_POISON: Features = Features::bit(4);
    /// The driver reports free pages.
    pub const PAGE_REPORTING: Features = Features::bit(5);
}

impl Configuration for Balloon {
    const LENGTH: usize = 16;

    fn image(&self) -> [u8; SPACE] {
        let fields = Fields::new().u32(self.wanted).u32(self.actual);
        fields.u32(self.free_page_hint).u32(self.poison).bytes()
    }

    fn write(&mut self, offset: u64, size: u8, value: u64) -> bool {
        let field = match (offset, size) {
            (4, 4) => &mut self.actual,
            (12, 4) => &mut self.poison,
            _ => return false,
        };
        let value = value as u32;
        core::mem::replace(field, value) != value
    }
}
