// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One channel of an 8254 (Intel 231164), by ticks of its clock.

/// How the bytes of a count come and go: bits 5:4 of the control word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bytes {
    Low,
    High,
    Both,
}

/// The six modes (231164, "Mode Definitions").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    InterruptOnTerminalCount,
    OneShot,
    RateGenerator,
    SquareWave,
    SoftwareStrobe,
    HardwareStrobe,
}

impl Mode {
    const fn of(bits: u8) -> Self {
        match bits & 7 {
            0 => Self::InterruptOnTerminalCount,
            1 => Self::OneShot,
            2 | 6 => Self::RateGenerator,
            3 | 7 => Self::SquareWave,
            4 => Self::SoftwareStrobe,
            _ => Self::HardwareStrobe,
        }
    }

    /// It counts its period again and again.
    const fn is_periodic(self) -> bool {
        matches!(self, Self::RateGenerator | Self::SquareWave)
    }

    /// A rising gate starts it.
    const fn is_triggered(self) -> bool {
        matches!(self, Self::OneShot | Self::HardwareStrobe)
    }
}

/// One channel.
#[derive(Clone, Debug)]
pub(super) struct Channel {
    control: u8,
    mode: Mode,
    bytes: Bytes,
    binary: bool,
    pub(super) gate: bool,
    /// The period, at most 65536; `None` until a count is written whole.
    period: Option<u64>,
    /// A count that takes effect at the end of the period, which is this tick.
    next: Option<(u64, u64)>,
    /// The tick at which the count was the period: the load, or the trigger. `None` while it does not count.
    start: Option<u64>,
    /// The ticks it had counted when the gate stopped it.
    held: u64,
    low: Option<u8>,
    second_read: bool,
    latched: Option<u16>,
    status: Option<u8>,
    /// The last tick up to which rising edges of the output were reported.
    pub(super) reported: u64,
    /// Edges that came together with one that was reported.
    pub(super) owed: u32,
}

impl Channel {
    pub(super) const fn new(gate: bool) -> Self {
        Self {
            control: 0,
            mode: Mode::InterruptOnTerminalCount,
            bytes: Bytes::Both,
            binary: true,
            gate,
            period: None,
            next: None,
            start: None,
            held: 0,
            low: None,
            second_read: false,
            latched: None,
            status: None,
            reported: 0,
            owed: 0,
        }
    }

    /// A control word: the channel waits for a count.
    pub(super) fn program(&mut self, control: u8, now: u64) {
        let bytes = match control >> 4 & 3 {
            1 => Bytes::Low,
            2 => Bytes::High,
            _ => Bytes::Both,
        };
        let mode = Mode::of(control >> 1);
        *self =
            Self { control: control & 0x3f, mode, bytes, binary: control & 1 == 0, ..Self::new(self.gate) };
        self.reported = now;
    }

    pub(super) fn write(&mut self, value: u8, now: u64) {
        let count = match (self.bytes, self.low) {
            (Bytes::Low, _) => u16::from(value),
            (Bytes::High, _) => u16::from(value) << 8,
            (Bytes::Both, None) => {
                self.low = Some(value);
                if self.mode == Mode::InterruptOnTerminalCount {
                    // The first byte stops the count.
                    self.start = None;
                    self.period = None;
                }
                return;
            }
            (Bytes::Both, Some(low)) => u16::from(value) << 8 | u16::from(low),
        };
        self.low = None;
        self.load(self.decode(count), now);
    }

    /// Returns the number of ticks of a count as it is written: zero is the whole range.
    pub(super) fn decode(&self, count: u16) -> u64 {
        let value = if self.binary {
            u64::from(count)
        } else {
            (0..4).fold(0, |sum, digit| sum + u64::from(count >> (4 * digit) & 0xf) * 10u64.pow(digit))
                % 10_000
        };
        if value == 0 { self.range() } else { value }
    }

    pub(super) const fn range(&self) -> u64 {
        if self.binary { 0x1_0000 } else { 10_000 }
    }

    /// A new count: at once, at the end of the period, or at the next trigger, by the mode.
    pub(super) fn load(&mut self, period: u64, now: u64) {
        self.settle(now);
        self.owed = 0;
        match (self.period, self.start) {
            (Some(old), Some(start)) if self.mode.is_periodic() && self.gate => {
                // As in `count`.
                let old = old.max(1);
                self.next = Some((period, start + (now.saturating_sub(start) / old + 1) * old));
            }
            (_, start) if self.mode.is_triggered() => {
                self.period = Some(period);
                self.start = start;
            }
            _ => {
                self.period = Some(period);
                self.held = 0;
                // The count is there with the next tick.
                self.start = self.gate.then_some(now + 1);
                self.reported = now;
            }
        }
    }

    /// Lets a count that waited for the end of the period take effect.
    pub(super) fn settle(&mut self, now: u64) {
        if let Some((period, at)) = self.next
            && now >= at
        {
            (self.period, self.start, self.next) = (Some(period), Some(at), None);
        }
    }

    pub(super) fn set_gate(&mut self, gate: bool, now: u64) {
        self.settle(now);
        let rises = gate && !self.gate;
        let falls = !gate && self.gate;
        self.gate = gate;
        if self.period.is_none() {
            return;
        }
        if rises && (self.mode.is_triggered() || self.mode.is_periodic()) {
            self.start = Some(now + 1);
            self.reported = now;
        } else if rises {
            self.start = Some((now + 1).saturating_sub(self.held));
        } else if falls && !self.mode.is_triggered() {
            self.held = self.start.map_or(0, |start| now.saturating_sub(start));
            self.start = None;
        }
    }

    /// Returns how many ticks it has counted since the load.
    pub(super) fn elapsed(&self, now: u64) -> u64 {
        self.start.map_or(self.held, |start| now.saturating_sub(start))
    }

    /// Returns the counter's value as it is read.
    pub(super) fn count(&self, now: u64) -> u16 {
        // Never zero, which the compiler cannot know: a light exit divides without a way into a panic.
        let Some(period) = self.period.map(|period| period.max(1)) else { return 0 };
        let elapsed = self.elapsed(now);
        let value = match self.mode {
            Mode::RateGenerator => period - elapsed % period,
            // It counts by two, twice in a period.
            Mode::SquareWave => {
                let half = period.div_ceil(2);
                let at = elapsed % period;
                let into = if at < half { at } else { at - half };
                (period & !1).saturating_sub(2 * into).max(2)
            }
            // Past zero it counts on, from the top of its range.
            _ => (period + self.range() - elapsed % self.range()) % self.range(),
        } % self.range();
        if self.binary {
            return value as u16;
        }
        (0..4).fold(0, |sum, digit| sum | ((value / 10u64.pow(digit) % 10) as u16) << (4 * digit))
    }

    /// Returns the level of the output.
    pub(super) fn output(&self, now: u64) -> bool {
        let (Some(period), elapsed) = (self.period.map(|period| period.max(1)), self.elapsed(now)) else {
            return self.mode != Mode::InterruptOnTerminalCount;
        };
        match self.mode {
            Mode::InterruptOnTerminalCount => elapsed >= period,
            Mode::OneShot => self.start.is_none() || elapsed >= period,
            Mode::RateGenerator => self.start.is_none() || elapsed % period != period - 1,
            Mode::SquareWave => self.start.is_none() || elapsed % period < period.div_ceil(2),
            Mode::SoftwareStrobe | Mode::HardwareStrobe => self.start.is_none() || elapsed != period,
        }
    }

    /// Returns the tick of the first rising edge of the output after `after`.
    pub(super) fn next_edge(&self, after: u64) -> Option<u64> {
        let (period, start) = (self.period?.max(1), self.start?);
        let once = |edge: u64| (edge > after).then_some(edge);
        match self.mode {
            Mode::InterruptOnTerminalCount | Mode::OneShot => once(start + period),
            Mode::SoftwareStrobe | Mode::HardwareStrobe => once(start + period + 1),
            Mode::RateGenerator | Mode::SquareWave => {
                Some(start + (after.saturating_sub(start) / period + 1) * period)
            }
        }
    }

    /// Says whether the output rose since this was last asked. What rose more than once is owed, up to `most` edges; of
    /// edges that are nearer than `shortest` only some are.
    pub(super) fn ring(&mut self, now: u64, shortest: u64, most: u32) -> bool {
        let edge = self.next_edge(self.reported).filter(|edge| *edge <= now);
        if let (Some(first), Some(period), None) = (edge, self.period, self.next)
            && self.mode.is_periodic()
        {
            let more = (now - first) / period.max(shortest);
            self.owed = u64::from(self.owed).saturating_add(more).min(most.into()) as u32;
        }
        self.reported = self.reported.max(now);
        self.settle(now);
        edge.is_some()
    }

    pub(super) fn read(&mut self, now: u64) -> u8 {
        if let Some(status) = self.status.take() {
            return status;
        }
        self.settle(now);
        let count = self.latched.unwrap_or_else(|| self.count(now));
        let second = self.bytes == Bytes::High || self.bytes == Bytes::Both && self.second_read;
        self.second_read = self.bytes == Bytes::Both && !self.second_read;
        if !self.second_read {
            self.latched = None;
        }
        if second { (count >> 8) as u8 } else { count as u8 }
    }

    /// Keeps the count until it is read; a second latch before that is ignored.
    pub(super) fn latch(&mut self, now: u64) {
        self.settle(now);
        if self.latched.is_none() {
            self.latched = Some(self.count(now));
        }
    }

    pub(super) fn latch_status(&mut self, now: u64) {
        self.settle(now);
        let output = u8::from(self.output(now)) << 7;
        let empty = u8::from(self.period.is_none() || self.next.is_some()) << 6;
        self.status.get_or_insert(output | empty | self.control);
    }
}
