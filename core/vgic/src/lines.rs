// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Input lines of SPIs, and who is told when an SPI becomes deliverable.

use crate::spi::{Flag, SpiWord};
use crate::{Host, Vgic};

impl Vgic {
    /// Tells the vCPU that has to know of a change: the owner, or the target if it is deliverable.
    pub(crate) fn signal<H: Host>(&self, host: &H, intid: u32, word: SpiWord) {
        if let Some(owner) = word.owner() {
            host.post(owner, intid);
        } else if word.pending()
            && word.has(Flag::Enabled)
            && let Some(target) = self.route(word)
        {
            host.post(target, intid);
        }
    }

    /// Tells the owners of the SPIs that `choose` names, or the targets of those that are deliverable.
    pub(crate) fn signal_each<H: Host>(&self, host: &H, choose: impl Fn(SpiWord) -> bool) {
        for (intid, spi) in (32..).zip(&self.spis) {
            let word = spi.load();
            if choose(word) {
                self.signal(host, intid, word);
            }
        }
    }

    /// Sets the level of an SPI's input line. A level-sensitive interrupt is pending while the line is
    /// high; an edge-triggered one becomes pending when it rises. Does nothing for other INTIDs.
    pub fn set_spi_line<H: Host>(&self, host: &H, intid: u32, high: bool) {
        let Some(spi) = self.spi(intid) else { return };
        let changed = spi.update(|word| {
            let rises = high && !word.has(Flag::Line) && word.has(Flag::Edge);
            Some(word.with(Flag::Line, high).with(Flag::Latch, word.has(Flag::Latch) || rises))
        });
        if let Some((old, new)) = changed
            && old.pending() != new.pending()
        {
            self.signal(host, intid, new);
        }
    }

    /// Raises and lowers an SPI's input line: an edge-triggered one is pending once, a level-sensitive one is as before. Does nothing for
    /// other INTIDs, and nothing while the line is high.
    pub fn edge_spi<H: Host>(&self, host: &H, intid: u32) {
        let Some(spi) = self.spi(intid) else { return };
        if let Some(new) = spi.latch(|word| word.has(Flag::Edge) && !word.has(Flag::Line)) {
            self.signal(host, intid, new);
        }
    }

    /// Makes an SPI pending once, as an edge does. Does nothing for other INTIDs.
    pub fn pulse_spi<H: Host>(&self, host: &H, intid: u32) {
        let Some(spi) = self.spi(intid) else { return };
        if let Some(new) = spi.latch(|_| true) {
            self.signal(host, intid, new);
        }
    }
}
