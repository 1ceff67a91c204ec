// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How long a port without buffers holds up who sends to it.

/// At once, in nanoseconds.
pub const PATIENCE: u64 = 2_000_000;
/// In the long run: one part in so many of the time.
const SHARE: u64 = 8;

/// What a port has used of the others' patience.
#[derive(Clone, Copy, Debug, Default)]
pub struct Patience {
    /// How long it has held up others, less what is forgiven.
    held: u64,
    /// When that was.
    at: u64,
    /// Since when it has no buffers.
    since: Option<u64>,
}

impl Patience {
    /// It has held up nobody.
    pub const NEW: Self = Self { held: 0, at: 0, since: None };

    /// It has no buffers. Returns for how long others wait yet; with 0 packets for it are lost.
    pub fn left(&mut self, now: u64) -> u64 {
        let since = *self.since.get_or_insert(now);
        let forgiven = since.saturating_sub(self.at) / SHARE;
        let held = self.held.saturating_sub(forgiven).saturating_add(now.saturating_sub(since));
        PATIENCE.saturating_sub(held)
    }

    /// It has taken something.
    #[inline] // On the path of every packet.
    pub fn taken(&mut self, now: u64) {
        if let Some(since) = self.since.take() {
            let forgiven = since.saturating_sub(self.at) / SHARE;
            let waited = now.saturating_sub(since).min(PATIENCE);
            (self.held, self.at) = (self.held.saturating_sub(forgiven).saturating_add(waited), now);
        }
    }
}
