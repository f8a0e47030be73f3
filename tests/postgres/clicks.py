#!/usr/bin/env python3
"""How many answers 1, 2 and 3 daemons make durable in a second, beside what the database itself does.

    tests/postgres/run --on-disk tests/postgres/clicks.py
    tests/postgres/run --on-disk tests/postgres/clicks.py --in-flight 32   at all daemons together
    tests/postgres/run --on-disk tests/postgres/clicks.py --at-least 0.5   fails if the share of the floor is less with 1, 2 or 3 daemons
    tests/postgres/run --on-disk tests/postgres/clicks.py --kept 1000000   one daemon, as the number of kept outcomes grows to that

An answer counts when its daemon has acknowledged it over the API of the inbox. Each daemon has 32 of them in flight. The floor is the least that any such program has to
do: pgbench locks a row, changes it and commits, with the same server, record, and number of connections (8 a daemon). Each figure
is the median of rounds in which the two take turns. The processor time of an answer is that of all daemons and the server together: unlike
the others it says the same on a machine that has more to do. `--kept` makes outcomes of a real one, starts the daemon anew with them, and also says
how long that took and how much memory it has then. ASKD_BIN names a binary with PostgreSQL (else target/dist/askd).
"""

import argparse, http.client, json, multiprocessing, os, pathlib, re, selectors, shutil, socket, statistics, subprocess, sys, tempfile, time

BINARY = str(pathlib.Path(os.environ.setdefault("ASKD_BIN", "target/dist/askd")).resolve())
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "gates"))
from over_http import OPERATOR, call, free_port, until  # noqa: E402

SERVER = os.environ["ASKD_TEST_POSTGRES"]
DATABASE = SERVER.rsplit("/", 1)[0] + "/clicks"
GROUPS, ASKS, ROUNDS, PROCESSES = 100, 1_000, 3, 2
IN_FLIGHT = 32  # answers, at each daemon
KEPT = 4_000  # outcomes of a group; a daemon forgets the oldest of more than 5,000
POOL = 8  # connections of a daemon
FLOOR = """\\set row random(1, {rows})
begin;
select revision from public.floor where row = :row for update;
update public.floor set revision = revision + 1, record = record where row = :row;
commit;
"""


def sql(text, url=DATABASE):
    done = subprocess.run(["psql", "-qtAX", "-v", "ON_ERROR_STOP=1", url], input=text, text=True, check=True, capture_output=True)
    return done.stdout.strip()


class Daemon:
    def __init__(self, folder, number, more=0):
        self.folder, self.port = folder / f"host-{number}", free_port()
        self.folder.mkdir()
        groups = "".join(f'[groups.g{n}]\nroutes = [{{ channel = "web" }}]\n' for n in range(GROUPS + more))
        (self.folder / "askd.toml").write_text(
            f'data_dir = "{self.folder}/data"\n[http]\nlisten = "127.0.0.1:{self.port}"\n[log]\nfilter = "warn"\n'
            f'[web]\ntoken = "{OPERATOR}"\n[postgres]\nurl = "{DATABASE}"\nlisten_url = "{DATABASE}"\nnode = "host-{number}"\n'
            f"[asks]\nmax_per_hour_per_group = 1000000\nmax_open_per_group = 1000000\n{groups}"
        )
        self.start()

    def start(self):
        env = {name: value for name, value in os.environ.items() if not name.startswith("ASKD") or name == "ASKD_SABOTAGE"}
        log = open(self.folder / "log", "a")
        self.process = subprocess.Popen([BINARY, "serve", "--config", self.folder / "askd.toml"], env=env, stdout=log, stderr=log)
        until(600, "the daemon", lambda: self.get("/readyz")[0] == 200)

    def get(self, path):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request("GET", path)
            reply = connection.getresponse()
            return reply.status, reply.read()
        finally:
            connection.close()

    def open(self, limit=1, after=""):  # a page of the open questions
        return call(self.port, "GET", f"/api/v1/asks?state=open&limit={limit}{after}", OPERATOR)[1]

    def all_open(self):
        page = self.open(1000)
        found = page["asks"]
        while after := page.get("next"):
            page = self.open(1000, f"&after={after}")
            found += page["asks"]
        return found

    def end(self):
        self.process.terminate()
        self.process.wait()

    def memory(self):  # in MB
        return int(re.search(r"VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{self.process.pid}/status").read_text())[1]) // 1024

    def starts(self):  # how many seconds until it is ready: it knows every question then
        begun = time.monotonic()
        self.start()
        return time.monotonic() - begun


def asked(daemons, mark):
    """Has agents ask in the folders of the first host. Returns each question's path and its answer."""
    for n in range(ASKS):
        tasks = daemons[0].folder / f"data/ipc/g{n % GROUPS}/tasks"
        until(30, "the folders", tasks.is_dir)
        text = json.dumps({"type": "ask_user:ask", "request_id": f"{mark}-{n}", "questions": [{"question": f"Deploy {mark} {n}?", "options": ["yes", "no"]}]})
        (tasks / f".{n}").write_text(text)
        (tasks / f".{n}").rename(tasks / f"{mark}-{n}.json")
    for daemon in daemons:
        until(120, "the questions", lambda: daemon.open()["total"] == ASKS)
    found = daemons[0].all_open()
    return [(f"/api/v1/asks/{ask['id']}/answer", json.dumps({"answers": {ask["questions"][0]["id"]: "yes"}})) for ask in found]


def answers(ports, connections, work, go, refused, ended):
    """Sends the answers over so many kept connections, each as soon as the one before it was acknowledged. Costs as little as it can: the
    daemons and the server run on the same processors. `ended`: when the last one was, which is before this process has ended."""
    lines = selectors.DefaultSelector()
    for n in range(connections):
        port = ports[n % len(ports)]
        line = socket.create_connection(("127.0.0.1", port), timeout=60)
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        head = f"Host: 127.0.0.1:{port}\r\nAuthorization: Bearer {OPERATOR}\r\nContent-Type: application/json\r\n"
        calls = [f"POST {path} HTTP/1.1\r\n{head}Content-Length: {len(body)}\r\n\r\n{body}".encode() for path, body in work[n::connections]]
        lines.register(line, selectors.EVENT_READ, [iter(calls), b""])

    def next_call(line, calls):
        call = next(calls[0], None)
        if call is None:
            lines.unregister(line)
        else:
            line.sendall(call)

    go.wait()
    for line in list(lines.get_map().values()):
        next_call(line.fileobj, line.data)
    while lines.get_map():
        for line, _ in lines.select():
            line.data[1] += line.fileobj.recv(1 << 16) or sys.exit("a daemon has closed a connection")
            head, end, body = line.data[1].partition(b"\r\n\r\n")
            if end and len(body) >= int(re.search(rb"content-length: (\d+)", head)[1]):
                refused.value += not head.startswith(b"HTTP/1.1 200")
                line.data[1] = b""
                next_call(line.fileobj, line.data)
    ended.value = time.monotonic()


def processor_time(daemons):
    """Of the daemons, and of the server with its processes, in seconds."""
    server = os.environ["ASKD_TEST_POSTGRES_PID"]
    children = subprocess.run(["pgrep", "-P", server], capture_output=True, text=True).stdout.split()

    def of(pid):
        try:
            user, system, *_ = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13]
        except FileNotFoundError:  # a connection that has ended
            return 0
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    return sum(of(pid) for pid in [server, *children, *(daemon.process.pid for daemon in daemons)])


def rest(daemons):
    """Waits until nothing is left to do of what came before."""

    def is_at_rest():
        before = processor_time(daemons)
        time.sleep(0.5)
        return processor_time(daemons) - before < 0.05

    until(60, "rest", is_at_rest)


def rate(daemons, mark, in_flight):
    """Answers a second, and the processor time of one in ms."""
    work, ports = asked(daemons, mark), [daemon.port for daemon in daemons]
    rest(daemons)
    go, refused = multiprocessing.Barrier(PROCESSES + 1), multiprocessing.Value("i", 0)
    ends = [multiprocessing.Value("d", 0) for _ in range(PROCESSES)]
    share = (in_flight or IN_FLIGHT * len(ports)) // PROCESSES
    loads = [
        multiprocessing.Process(target=answers, args=(ports, share, work[n::PROCESSES], go, refused, ended)) for n, ended in enumerate(ends)
    ]
    for load in loads:
        load.start()
    used = processor_time(daemons)
    go.wait()
    begun = time.monotonic()
    for load in loads:
        load.join()
    took, used = max(ended.value for ended in ends) - begun, processor_time(daemons) - used
    if refused.value:
        raise SystemExit(f"{refused.value} answers were not acknowledged")
    responses = lambda: list(daemons[0].folder.glob(f"data/ipc/*/responses/{mark}-*.json"))
    until(60, "the responses", lambda: len(responses()) == ASKS)
    taken = daemons[0].folder / "taken"
    taken.mkdir(exist_ok=True)
    for response in responses():
        response.rename(taken / response.name)  # the agents take them; ext4 is slow for seconds where files were deleted
    return ASKS / took, 1_000 * used / ASKS


def floor(folder, daemons):
    script = folder / "floor.sql"
    script.write_text(FLOOR.format(rows=ASKS))
    done = subprocess.run(
        ["pgbench", "-n", "-c", str(POOL * daemons), "-j", "2", "-T", "3", "-f", script, DATABASE], check=True, capture_output=True, text=True
    )
    return float(re.search(r"tps = ([\d.]+)", done.stdout)[1])


def asked_first(daemons):
    """The records of the floor are those of the first questions."""
    if sql("select to_regclass('public.floor') is null") == "t":
        asked(daemons, "first")
        sql(f"create table public.floor as select row_number() over () as row, revision, record from askd.asks limit {ASKS};"
            "alter table public.floor add primary key (row)")
        for ask in daemons[0].all_open():
            call(daemons[0].port, "POST", f"/api/v1/asks/{ask['id']}/dismiss", OPERATOR, {})


def compared(folder, daemons, mark, in_flight=None):
    """Prints the medians, and returns that of the share."""
    name = re.sub(r"\W+", "-", mark)
    rounds = [(floor(folder, len(daemons)), *rate(daemons, f"{name}-{n}", in_flight)) for n in range(ROUNDS)]
    floors, rates, used = (statistics.median(each) for each in zip(*rounds))
    ratio = statistics.median(rate / floor for floor, rate, _ in rounds)
    print(f"| {mark} | {floors:,.0f}/s | {rates:,.0f}/s | {ratio:.2f} | {used:.2f} ms |", flush=True)
    return ratio


def keep(first, last):
    """Makes outcomes of a real one with these numbers: each has an id, a code and a request of its own, in groups of their own."""
    sql(f"""
        insert into askd.asks (id, group_name, settled, revision, operations, short_id, record)
        select which, of_group, true, revision, array[gen_random_uuid()], code, record || jsonb_build_object(
            'id', replace(which::text, '-', ''), 'short_id', code, 'request_id', request, 'source_group', of_group,
            'waiters', jsonb_set(jsonb_set(record -> 'waiters', '{{0,request_id}}', to_jsonb(request)),
                                 '{{0,digest}}', to_jsonb(encode(sha256(request::bytea), 'hex'))),
            'questions', jsonb_set(record -> 'questions', '{{0,question}}', to_jsonb('Deploy ' || request || '?')))
        from (select revision, record from askd.asks
              where settled and record #>> '{{waiters,0,response}}' = 'taken' limit 1) as real, lateral (
            select gen_random_uuid() as which, 'g' || {GROUPS} + n / {KEPT} as of_group, 'k' || to_hex(n) as code, 'kept-' || n as request
            from generate_series({first}, {last - 1}) as n) as new;
        analyze askd.asks;
        checkpoint""")


def as_kept_grow(folder, daemons, most):
    print("| kept | start | memory | floor | askd | askd / floor | processor time of an answer |\n|---|---|---|---|---|---|---|")
    daemons.append(Daemon(folder, 0, more=-(-most // KEPT)))
    asked_first(daemons)
    kept = 0
    for many in (0, most // 10, most):
        daemons[0].end()
        keep(kept, many)
        kept = many
        took = daemons[0].starts()
        compared(folder, daemons, f"{many:,} | {took:.1f} s | {daemons[0].memory()} MB")


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--kept", type=int, help="how many outcomes to grow to")
    options.add_argument("--in-flight", type=int, help="how many answers are in flight at all daemons together (else 32 at each)")
    options.add_argument("--at-least", type=float, default=0, help="the share of the floor below which it fails")
    options = options.parse_args()
    sql("create database clicks", SERVER)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="askd-clicks-"))
    daemons = []
    try:
        if options.kept:
            return as_kept_grow(folder, daemons, options.kept)
        print("| daemons | floor | askd | askd / floor | processor time of an answer |\n|---|---|---|---|---|")
        for count in (1, 2, 3):
            daemons.append(Daemon(folder, count - 1))
            asked_first(daemons)
            share = compared(folder, daemons, str(count), options.in_flight)
            if share < options.at_least:
                sys.exit(f"{count} daemons reach {share:.2f} of the floor; {options.at_least} is asked for")
    finally:
        for daemon in daemons:
            daemon.end()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
