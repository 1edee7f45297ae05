//! A TCP relay that adds a delay, and if wished a bound on the rate, standing in for a long path where the kernel has no
//! netem.
//!
//! usage: delay ONE_WAY_MS[:MBIT_S] LISTEN=BACKEND...
//!
//! Every connection pays for the round trip of its SYN, and every byte for the way. Nothing is lost. Without a rate, a
//! direction of a connection holds at most `MAX_HELD_BYTES` on its way. With one, all connections share a bottleneck in each
//! direction, which takes `MAX_SLOW_CHUNK_BYTES` of each in turn; what waits for it waits in a receive buffer of
//! `SLOW_BUFFER_BYTES` for each connection.
//!
//! It shares its processors with what is measured, so one thread does everything for all: what it takes for a few bytes is four
//! system calls, and nothing wakes another thread. Only who carries much has a thread of its own, without a rate: on a path,
//! nobody waits until somebody else's bytes are copied. Nor does a path wait for a processor: as root, the one thread has one
//! as soon as it wants it (`SCHED_FIFO`), and those that carry much share them as all do.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    error::Error,
    io::{self, ErrorKind, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

const MAX_CHUNK_BYTES: usize = 65_536;
const MAX_SLOW_CHUNK_BYTES: usize = 16_384;
const MAX_HELD_BYTES: usize = 64 << 20;
/// Who has carried so much gets a thread.
const MUCH_BYTES: usize = 1 << 20;
/// What is shorter has memory of its own, and leaves the buffer to what comes next.
const SHORT_BYTES: usize = 4_096;
/// How many buffers are kept for later.
const MAX_SPARE: usize = 1_024;
/// The kernel doubles it.
const SLOW_BUFFER_BYTES: i32 = 131_072;
/// How much of a bottleneck that stood still may be made up for: sleepers wake up late.
const CREDIT: Duration = Duration::from_millis(4);
const CONNECT_TIME: Duration = Duration::from_secs(1);

const SOL_SOCKET: i32 = 1;
const SO_RCVBUF: i32 = 8;
const SCHED_FIFO: i32 = 1;
/// For this thread, and not for those that it starts.
const SCHED_RESET_ON_FORK: i32 = 0x4000_0000;
const EPOLL_CTL_ADD: i32 = 1;
const EPOLL_CTL_DEL: i32 = 2;
const EPOLL_CLOEXEC: i32 = 0o2_000_000;
const EPOLLIN: u32 = 1;
const EPOLLOUT: u32 = 4;
const EPOLLERR: u32 = 8;
const EPOLLHUP: u32 = 0x10;
const EPOLLRDHUP: u32 = 0x2000;
const EPOLLET: u32 = 1 << 31;
/// What is told once, when it becomes so.
const WATCHED: u32 = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
const MAX_EVENTS: usize = 256;

#[repr(C)]
#[cfg_attr(target_arch = "x86_64", repr(packed))]
#[derive(Clone, Copy)]
struct EpollEvent {
    events: u32,
    data: u64,
}

#[repr(C)]
struct SchedParam {
    priority: i32,
}

#[repr(C)]
struct Timespec {
    seconds: i64,
    nanoseconds: i64,
}

unsafe extern "C" {
    fn setsockopt(socket: i32, level: i32, name: i32, value: *const i32, length: u32) -> i32;
    fn sched_setscheduler(thread: i32, policy: i32, param: *const SchedParam) -> i32;
    fn epoll_create1(flags: i32) -> i32;
    fn epoll_ctl(epoll: i32, what: i32, fd: i32, event: *mut EpollEvent) -> i32;
    fn epoll_pwait2(
        epoll: i32,
        events: *mut EpollEvent,
        room: i32,
        timeout: *const Timespec,
        signals: *const u8,
    ) -> i32;
}

/// The kernel's list of what can be read and written.
struct Watch(OwnedFd);

impl Watch {
    fn new() -> io::Result<Self> {
        // SAFETY: it takes no pointer.
        let fd = unsafe { epoll_create1(EPOLL_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new, and nobody else's.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    fn add(&self, socket: &impl AsRawFd, events: u32, data: u64) -> io::Result<()> {
        self.control(EPOLL_CTL_ADD, socket, events, data)
    }

    fn remove(&self, socket: &impl AsRawFd) -> io::Result<()> {
        self.control(EPOLL_CTL_DEL, socket, 0, 0)
    }

    fn control(&self, what: i32, socket: &impl AsRawFd, events: u32, data: u64) -> io::Result<()> {
        let mut event = EpollEvent { events, data };
        // SAFETY: the event is alive; the kernel copies it.
        match unsafe { epoll_ctl(self.0.as_raw_fd(), what, socket.as_raw_fd(), &raw mut event) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// What has become possible, at the latest at this time.
    fn wait<'a>(&self, room: &'a mut [EpollEvent; MAX_EVENTS], until: Option<Instant>) -> &'a [EpollEvent] {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let timeout = left.map(|left| Timespec {
            seconds: left.as_secs().cast_signed(),
            nanoseconds: i64::from(left.subsec_nanos()),
        });
        let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: room and time are alive, and the room's length is given with it.
        let count = unsafe {
            epoll_pwait2(self.0.as_raw_fd(), room.as_mut_ptr(), MAX_EVENTS as i32, timeout, std::ptr::null())
        };
        &room[..usize::try_from(count).unwrap_or(0)]
    }
}

/// A direction: from whoever dialed, or to them.
#[derive(Clone, Copy)]
enum Way {
    Up,
    Down,
}

/// What arrives at the other end of the path.
enum Arrival {
    Syn,
    /// The SYN-ACK, behind which what the near side sends leaves it.
    SynAck,
    Bytes(Way, Vec<u8>, usize),
    End(Way),
}

struct Connection {
    near: TcpStream,
    far: Option<TcpStream>,
    /// How many bytes have left either side.
    carried: usize,
    backend: SocketAddr,
    up: Pipe,
    down: Pipe,
}

/// One direction of a connection.
#[derive(Default)]
struct Pipe {
    /// Bytes that have left one side and are not the other's.
    held: usize,
    /// What has come to the other end, with where it begins and ends, and is not written yet.
    waiting: VecDeque<(Vec<u8>, usize, usize)>,
    may_read: bool,
    /// It is in the list of those that are to be read.
    is_listed: bool,
    /// Its end has left.
    has_ended: bool,
    /// Its end has arrived, but what waits goes before it.
    ends: bool,
    is_over: bool,
}

impl Connection {
    fn parts(&mut self, way: Way) -> (&mut Pipe, Option<&TcpStream>, Option<&TcpStream>) {
        match way {
            Way::Up => (&mut self.up, Some(&self.near), self.far.as_ref()),
            Way::Down => (&mut self.down, self.far.as_ref(), Some(&self.near)),
        }
    }
}

/// What is to be read of a direction, in turn, and the bottleneck before it.
struct Bottleneck {
    bytes_per_second: Option<f64>,
    free_at: Instant,
    readable: VecDeque<u64>,
}

impl Bottleneck {
    /// When so many bytes, which enter now, are through.
    fn through(&mut self, now: Instant, bytes: usize) -> Instant {
        let Some(rate) = self.bytes_per_second else { return now };
        self.free_at = self.free_at.max(now - CREDIT) + Duration::from_secs_f64(bytes as f64 / rate);
        self.free_at.max(now)
    }
}

struct Relay {
    watch: Watch,
    delay: Duration,
    chunk_bytes: usize,
    listeners: Vec<(TcpListener, SocketAddr)>,
    connections: HashMap<u64, Connection>,
    next: u64,
    /// When what comes to which connection; what is due at the same moment, in the order in which it left.
    arrivals: BTreeMap<(Instant, u64), (u64, Arrival)>,
    departures: u64,
    up: Bottleneck,
    down: Bottleneck,
    spare: Vec<Vec<u8>>,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // SAFETY: the parameter is alive. Who is not root goes on as all do.
    unsafe { sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK, &SchedParam { priority: 1 }) };
    match Relay::new(&arguments).map(Relay::run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("delay: {error}");
            ExitCode::FAILURE
        }
    }
}

impl Relay {
    fn new(arguments: &[String]) -> Result<Self, Box<dyn Error>> {
        let (path, pairs) = arguments.split_first().ok_or("usage: delay ONE_WAY_MS[:MBIT_S] LISTEN=BACKEND...")?;
        let (delay, rate) = path.split_once(':').map_or((&**path, None), |(delay, rate)| (delay, Some(rate)));
        let number = |text: &str| text.parse::<f64>().map_err(|_| format!("{text:?} is no number"));
        let delay = Duration::from_secs_f64(number(delay)? / 1e3);
        let bytes_per_second = rate.map(number).transpose()?.map(|mbit| mbit * 1e6 / 8.0);
        let mut relay = Self::empty(delay, bytes_per_second)?;
        for (number, pair) in pairs.iter().enumerate() {
            let (listen, backend) = pair.split_once('=').ok_or_else(|| format!("{pair:?} is not LISTEN=BACKEND"))?;
            let listener = TcpListener::bind(listen).map_err(|error| format!("{listen}: {error}"))?;
            listener.set_nonblocking(true)?;
            relay.watch.add(&listener, EPOLLIN, number as u64)?;
            relay.listeners.push((listener, backend.parse().map_err(|_| format!("{backend:?} is no address"))?));
        }
        relay.next = relay.listeners.len() as u64;
        Ok(relay)
    }

    fn empty(delay: Duration, bytes_per_second: Option<f64>) -> io::Result<Self> {
        let bottleneck = || Bottleneck { bytes_per_second, free_at: Instant::now(), readable: VecDeque::new() };
        Ok(Self {
            watch: Watch::new()?,
            delay,
            chunk_bytes: if bytes_per_second.is_some() { MAX_SLOW_CHUNK_BYTES } else { MAX_CHUNK_BYTES },
            next: 0,
            listeners: Vec::new(),
            connections: HashMap::new(),
            arrivals: BTreeMap::new(),
            departures: 0,
            up: bottleneck(),
            down: bottleneck(),
            spare: Vec::new(),
        })
    }

    /// Until nothing can come any more.
    fn run(mut self) {
        let mut room = [EpollEvent { events: 0, data: 0 }; MAX_EVENTS];
        while !(self.listeners.is_empty() && self.connections.is_empty()) {
            let until = self.next_time();
            for event in self.watch.wait(&mut room, until) {
                let EpollEvent { events, data } = *event;
                match usize::try_from(data).ok().filter(|number| *number < self.listeners.len()) {
                    Some(listener) => self.accept(listener),
                    None => self.can(data >> 1, data & 1 == 1, events),
                }
            }
            self.read_in_turn(Way::Up);
            self.read_in_turn(Way::Down);
            let now = Instant::now();
            while let Some(first) = self.arrivals.first_entry().filter(|first| first.key().0 <= now) {
                let (id, arrival) = first.remove();
                self.arrives(id, arrival);
            }
        }
    }

    /// When something is to be done that no event tells of.
    fn next_time(&self) -> Option<Instant> {
        let reading = [&self.up, &self.down].into_iter().filter(|way| !way.readable.is_empty()).map(|way| way.free_at);
        reading.chain(self.arrivals.first_key_value().map(|((due, _), _)| *due)).min()
    }

    fn comes_at(&mut self, due: Instant, id: u64, arrival: Arrival) {
        self.departures += 1;
        self.arrivals.insert((due, self.departures), (id, arrival));
    }

    fn accept(&mut self, listener: usize) {
        while let Ok((near, _)) = self.listeners[listener].0.accept() {
            let backend = self.listeners[listener].1;
            let (up, down) = (Pipe::default(), Pipe::default());
            let connection = Connection { near, far: None, carried: 0, backend, up, down };
            self.next += 1;
            self.connections.insert(self.next, connection);
            self.comes_at(Instant::now() + self.delay, self.next, Arrival::Syn);
        }
    }

    /// A side of a connection can be read or written.
    fn can(&mut self, id: u64, is_far: bool, events: u32) {
        let (from_it, to_it) = if is_far { (Way::Down, Way::Up) } else { (Way::Up, Way::Down) };
        if events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR) != 0 {
            self.list(id, from_it);
        }
        if events & (EPOLLOUT | EPOLLHUP | EPOLLERR) != 0 {
            self.write(id, to_it);
        }
    }

    /// Has a direction read when it is its turn.
    fn list(&mut self, id: u64, way: Way) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let (pipe, ..) = connection.parts(way);
        if pipe.may_read && !pipe.is_listed && !pipe.has_ended && pipe.held < MAX_HELD_BYTES {
            pipe.is_listed = true;
            self.bottleneck(way).readable.push_back(id);
        }
    }

    fn bottleneck(&mut self, way: Way) -> &mut Bottleneck {
        match way {
            Way::Up => &mut self.up,
            Way::Down => &mut self.down,
        }
    }

    /// One chunk of each that can be read, as far as the bottleneck takes them.
    fn read_in_turn(&mut self, way: Way) {
        for _ in 0..self.bottleneck(way).readable.len() {
            let now = Instant::now();
            let bottleneck = self.bottleneck(way);
            if bottleneck.bytes_per_second.is_some() && bottleneck.free_at > now {
                return;
            }
            let Some(id) = bottleneck.readable.pop_front() else { return };
            self.read(id, way);
        }
    }

    fn read(&mut self, id: u64, way: Way) {
        let has_much = |connection: &Connection| connection.carried > MUCH_BYTES;
        let may_move = self.up.bytes_per_second.is_none() && !self.listeners.is_empty();
        if may_move && self.connections.get(&id).is_some_and(has_much) && self.move_apart(id) {
            return;
        }
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let (pipe, Some(mut from), _) = connection.parts(way) else { return };
        pipe.is_listed = false;
        let mut buffer = self.spare.pop().unwrap_or_else(|| vec![0; self.chunk_bytes]);
        let length = match from.read(&mut buffer) {
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                self.spare.push(buffer);
                return;
            }
            outcome => outcome.unwrap_or(0),
        };
        pipe.held += length;
        pipe.has_ended = length == 0;
        connection.carried += length;
        // Only now: what came while it was copied has the whole way before it, too.
        let now = Instant::now();
        let due = self.bottleneck(way).through(now, length) + self.delay;
        if length == 0 {
            self.spare.push(buffer);
            self.comes_at(due, id, Arrival::End(way));
            return;
        }
        let bytes = if length < SHORT_BYTES {
            let short = buffer[..length].to_vec();
            self.spare.push(buffer);
            short
        } else {
            buffer
        };
        self.comes_at(due, id, Arrival::Bytes(way, bytes, length));
        self.list(id, way);
    }

    /// Gives a connection a thread of its own, where there is a descriptor for that.
    fn move_apart(&mut self, id: u64) -> bool {
        let Ok(mut apart) = Self::empty(self.delay, None) else { return false };
        let Some(mut connection) = self.connections.remove(&id) else { return false };
        for (socket, is_far) in [(Some(&connection.near), 0), (connection.far.as_ref(), 1)] {
            let Some(socket) = socket else { continue };
            let moved = self.watch.remove(socket).and_then(|()| apart.watch.add(socket, WATCHED, id << 1 | is_far));
            moved.expect("it is watched here, and was not there");
        }
        // What can be read there, its events tell.
        (connection.up.is_listed, connection.down.is_listed) = (false, false);
        apart.connections.insert(id, connection);
        apart.arrivals.extend(self.arrivals.extract_if(.., |_, (of, _)| *of == id));
        apart.departures = self.departures;
        thread::spawn(move || apart.run());
        true
    }

    fn arrives(&mut self, id: u64, arrival: Arrival) {
        match arrival {
            Arrival::Syn => {
                if self.dial(id).is_ok() {
                    self.comes_at(Instant::now() + self.delay, id, Arrival::SynAck);
                } else {
                    self.connections.remove(&id);
                }
            }
            Arrival::SynAck => {
                let Some(connection) = self.connections.get_mut(&id) else { return };
                connection.up.may_read = true;
                self.list(id, Way::Up);
            }
            Arrival::Bytes(way, bytes, length) => {
                let Some(connection) = self.connections.get_mut(&id) else { return };
                connection.parts(way).0.waiting.push_back((bytes, 0, length));
                self.write(id, way);
            }
            Arrival::End(way) => {
                let Some(connection) = self.connections.get_mut(&id) else { return };
                connection.parts(way).0.ends = true;
                self.write(id, way);
            }
        }
    }

    /// Waits for the connection, which is there at once unless nobody takes it: it is one within this machine.
    fn dial(&mut self, id: u64) -> io::Result<()> {
        let Some(connection) = self.connections.get_mut(&id) else { return Err(ErrorKind::NotFound.into()) };
        let far = TcpStream::connect_timeout(&connection.backend, CONNECT_TIME)?;
        for (stream, is_far) in [(&connection.near, 0), (&far, 1)] {
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            if self.up.bytes_per_second.is_some() {
                // SAFETY: the value is a live i32, whose length is given with it.
                unsafe { setsockopt(stream.as_raw_fd(), SOL_SOCKET, SO_RCVBUF, &SLOW_BUFFER_BYTES, 4) };
            }
            self.watch.add(stream, WATCHED, id << 1 | is_far)?;
        }
        connection.far = Some(far);
        connection.down.may_read = true;
        Ok(())
    }

    /// Writes what has arrived, as far as it is taken.
    fn write(&mut self, id: u64, way: Way) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let (pipe, from, Some(mut to)) = connection.parts(way) else { return };
        let was_full = pipe.held >= MAX_HELD_BYTES;
        while let Some((bytes, at, end)) = pipe.waiting.front_mut() {
            match to.write(&bytes[*at..*end]) {
                Ok(length) => {
                    pipe.held -= length;
                    *at += length;
                    if at < end {
                        continue;
                    }
                    if let Some((bytes, ..)) = pipe.waiting.pop_front()
                        && bytes.len() == self.chunk_bytes
                        && self.spare.len() < MAX_SPARE
                    {
                        self.spare.push(bytes);
                    }
                }
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => break,
                Err(_) => {
                    // Nobody is there any more: whoever sends is to know, and what comes from there has ended, too.
                    pipe.waiting.clear();
                    (pipe.has_ended, pipe.is_over) = (true, true);
                    let _ = to.shutdown(Shutdown::Both);
                    let _ = from.map(|from| from.shutdown(Shutdown::Read));
                    break;
                }
            }
        }
        if pipe.ends && pipe.waiting.is_empty() && !pipe.is_over {
            pipe.is_over = true;
            let _ = to.shutdown(Shutdown::Write);
        }
        let is_over = connection.up.is_over && connection.down.is_over;
        if is_over {
            self.connections.remove(&id);
        } else if was_full {
            self.list(id, way);
        }
    }
}
