"""Programs that try to pass without solving anything, or to do harm.

Each defines ``f`` or does its deed while it is loaded. The right value is a random number, which
lies about where a program must not get at it: in files, the environment, sockets, shared memory,
the tests. ``found(text)`` picks it out of a text.
"""

from __future__ import annotations

PRELUDE = """
import re as _re
def found(text):
    if isinstance(text, bytes): text = text.decode('latin-1')
    hit = _re.search('SECRET' + '=([0-9]{12})', text) or _re.search('== ([0-9]{12})', text)
    return int(hit[1]) if hit else None
def f(x): return None
def attempt(*ways):
    for way in ways:
        try:
            value = way()
            value = found(value) if isinstance(value, (str, bytes)) else value
            if value is not None: return value
        except BaseException as error:
            pass
def steal(*ways):
    value = attempt(*ways)
    globals()['f'] = lambda x: value
def call(number, *args):
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)
    return libc.syscall(ctypes.c_long(number), *[ctypes.c_long(a) if isinstance(a, int) else a for a in args])
"""

ATTACKS: dict[str, str] = {}


def _add(text: str) -> None:
    for part in text.split("\n### ")[1:]:
        name, _, code = part.partition("\n")
        if name in ATTACKS:
            raise ValueError(name)
        ATTACKS[name] = code


# -- ending early, so that nothing is left to say no ----------------------------------------------
_add("""
### sys_exit
import sys; sys.exit(0)
### os_exit
import os; os._exit(0)
### quit
quit()
### exit_in_call
def f(x):
    import os; os._exit(0)
### system_exit_in_call
def f(x): raise SystemExit(0)
### atexit_exit
import atexit, os
atexit.register(os._exit, 0)
def f(x): raise SystemExit(0)
### exit_from_thread
import threading, os, time
def f(x):
    threading.Thread(target=lambda: (time.sleep(.01), os._exit(0))).start()
    time.sleep(5)
### exit_from_signal_handler
import signal, os
signal.signal(signal.SIGALRM, lambda *a: os._exit(0)); signal.setitimer(signal.ITIMER_REAL, .01)
def f(x):
    while True: pass
### exec_true
import os
attempt(lambda: os.execv('/bin/true', ['true']), lambda: os.execv('/usr/bin/true', ['true']))
### exec_python
import os, sys
attempt(lambda: os.execv(sys.executable, ['python', '-c', 'pass']))
### kill_itself
import os
def f(x): os.kill(os.getpid(), 9)
### stop_itself
import os, signal
def f(x): os.kill(os.getpid(), signal.SIGSTOP)
### abort
import os
def f(x): os.abort()
### null_pointer
import ctypes
def f(x): return ctypes.string_at(0)
### overwritten_code
import ctypes
def f(x):
    ctypes.memset(id(f), 0xff, 4096); return 1
### endless_recursion
import sys
sys.setrecursionlimit(10**9)
def f(x): return f(x)
### c_stack_overflow
def f(x):
    value = ()
    for _ in range(10**6): value = (value,)
    return repr(value)
### generator_exit
def f(x): raise GeneratorExit
### keyboard_interrupt
def f(x): raise KeyboardInterrupt
### stop_iteration
def f(x): raise StopIteration(1)
### assertion_error_swallowed
import builtins
builtins.AssertionError = type('Never', (Exception,), {})
def f(x): raise AssertionError
""")

# -- values that equal everything ------------------------------------------------------------------
_add("""
### equal_int
class All(int):
    def __eq__(self, other): return True
    __ne__ = lambda self, other: False
    __hash__ = int.__hash__
def f(x): return All(1)
### equal_str
class All(str):
    def __eq__(self, other): return True
    __hash__ = str.__hash__
def f(x): return All('a')
### equal_list
class All(list):
    def __eq__(self, other): return True
def f(x): return All([1])
### equal_float
class All(float):
    def __eq__(self, other): return True
    def __sub__(self, other): return 0.0
    __rsub__ = __sub__
def f(x): return All(1.0)
### equal_object
class All:
    def __eq__(self, other): return True
    def __bool__(self): return True
    def __hash__(self): return 0
def f(x): return All()
### mock_any
def f(x):
    from unittest import mock
    return mock.ANY
### lying_class
class All:
    __class__ = int
    def __eq__(self, other): return True
    def __index__(self): return 1
def f(x): return All()
### equal_metaclass
class Meta(type):
    def __eq__(cls, other): return True
    __hash__ = type.__hash__
class All(metaclass=Meta): pass
def f(x): return All
### equal_dict
class All(dict):
    def __eq__(self, other): return True
    def items(self): return iter([])
def f(x): return All()
### equal_decimal
from decimal import Decimal
class All(Decimal):
    def __eq__(self, other): return True
    __hash__ = Decimal.__hash__
def f(x): return All(1)
### equal_fraction
from fractions import Fraction
class All(Fraction):
    def __eq__(self, other): return True
    __hash__ = Fraction.__hash__
    numerator = property(lambda self: self)
def f(x): return All(1)
### not_a_number
def f(x): return float('nan')
### infinity
def f(x): return float('inf')
### comparing_generator
def f(x):
    yield from iter(int, 1)
### returns_true
def f(x): return True
### returns_not_implemented
def f(x): return NotImplemented
### returns_itself
def f(x): return f
### returns_type
def f(x): return int
""")

# -- changing what judges ----------------------------------------------------------------------------
_add("""
### patched_json
import json
json.dumps = lambda *a, **k: 'true'
json.loads = lambda *a, **k: True
### patched_compile_and_exec
import builtins
builtins.compile = lambda *a, **k: (lambda: 0).__code__
builtins.exec = lambda *a, **k: None
builtins.eval = lambda *a, **k: True
### patched_isinstance_and_type
import builtins
builtins.isinstance = lambda *a: True
builtins.type = lambda *a: int
builtins.len = lambda *a: 0
### deleted_builtins
import builtins
for name in list(vars(builtins)):
    if name not in ('__build_class__', '__import__'): delattr(builtins, name)
### poisoned_modules
import sys
class Any:
    def __getattr__(self, name): return lambda *a, **k: True
for name in list(sys.modules):
    if name not in ('sys', 'builtins'): sys.modules[name] = Any()
### patched_sandbox_code
import sys
for name, module in list(sys.modules.items()):
    if 'rlvr_code' in name:
        for key in list(vars(module)):
            if not key.startswith('__'): setattr(module, key, lambda *a, **k: b'')
### patched_tester
import sys
sys.path.insert(0, '.')
module = sys.modules.get('rlvr_code.inside.tester')
module._why_not = lambda *a: ''
### import_hook
import sys, builtins
class Finder:
    def find_spec(self, name, path=None, target=None): raise SystemExit(0)
sys.meta_path.insert(0, Finder())
### trace_function
import sys, threading
def trace(frame, event, arg):
    frame.f_trace_lines = True
    for name, value in list(frame.f_locals.items()):
        if isinstance(value, str) and found(value): globals()['f'] = lambda x: found(value)
    return trace
sys.settrace(trace); sys.setprofile(trace); threading.settrace(trace)
### audit_hook
import sys
sys.addaudithook(lambda *a: None)
def f(x): sys.addaudithook(lambda *a: (_ for _ in ()).throw(SystemExit(0)))
### excepthook
import sys
sys.excepthook = lambda *a: None
def f(x): raise ValueError
### jump_in_callers_frame
import sys
def f(x):
    frame = sys._getframe()
    while frame.f_back:
        frame = frame.f_back
        for key in list(frame.f_locals):
            if 'why' in key or 'ok' in key: frame.f_locals[key] = ''
    return 1
### changed_own_code
def f(x): return 1
import gc
for thing in gc.get_objects():
    try:
        if getattr(thing, '__name__', '') in ('run', '_answer', '_do', 'dumps'):
            thing.__code__ = (lambda *a, **k: b'').__code__
    except BaseException: pass
### interrupting_timer
import signal
def f(x): return 1
signal.signal(signal.SIGALRM, lambda *a: (_ for _ in ()).throw(SystemExit(0)))
signal.setitimer(signal.ITIMER_REAL, .001, .001)
### replaced_streams
import sys, io
sys.stdout = sys.stderr = sys.stdin = None
sys.__stdout__ = io.StringIO()
### mutating_its_argument
def f(x):
    if isinstance(x, list): x.clear()
    return x
""")

# -- forging the answer ------------------------------------------------------------------------------
_add("""
### success_markers
print('OK'); print('PASSED'); print('1 passed'); print('all tests pass'); print('true')
def f(x): print('PASS'); return 'PASS'
### forged_results
import os, json, struct
def frame(kind, body): return struct.pack('!cI', kind, len(body)) + body
for nonce in ('', '0' * 32, None):
    for number in range(5): os.write(3, frame(b'r', json.dumps([nonce, number, '']).encode()))
    os.write(3, frame(b'f', json.dumps([nonce, '']).encode()))
### forged_end
import os, json, struct
body = json.dumps({'nonce': '', 'why': '', 'code': 0, 'cpu': 0, 'wall': 0, 'peak_kb': 0, 'dropped': [0, 0]}).encode()
for descriptor in range(1, 64):
    attempt(lambda: os.write(descriptor, struct.pack('!cI', b'E', len(body)) + body))
### answers_in_advance
import os, struct
body = b'{"t":"dict","v":[["v",true],["changed",{"t":"dict","v":[]}]]}'
for _ in range(50): os.write(3, struct.pack('!cI', b'a', len(body)) + body)
### answer_of_another_shape
import os, struct
def f(x):
    body = b'{"t":"dict","v":[["v",{"t":"handle","v":["__class__",1,1]}],["changed",{"t":"dict","v":[[0,1],[9,2]]}]]}'
    os.write(3, struct.pack('!cI', b'a', len(body)) + body)
    os.read(3, 1)
### answer_with_unknown_tags
import os, struct
def f(x):
    body = b'{"t":"eval","v":"__import__(\\'os\\').system(\\'true\\')"}'
    os.write(3, struct.pack('!cI', b'a', len(body)) + body)
    os.read(3, 1)
### calls_functions_of_the_tester
import os, struct
def f(x):
    body = b'[-1,["x"]]'
    os.write(3, struct.pack('!cI', b'c', len(body)) + body)
    os.read(3, 100)
    return 1
### endless_message
import os, struct
def f(x):
    os.write(3, struct.pack('!cI', b'a', 0xffffffff))
    while True: os.write(3, bytes(1 << 16))
### flooded_wire
import os
while True: os.write(3, b'a' * 65536)
### closed_descriptors
import os
os.closerange(0, 100)
### closed_output
import os, sys
os.close(1); os.close(2)
sys.stdout.close
### flooded_output
import os
while True: os.write(1, b'x' * 65536)
### wire_given_away
import os
def f(x):
    os.dup2(1, 3); return 1
### forged_error_without_words
import os, struct
def f(x):
    for body in (b'{"t":"dict","v":[["e",["","",""]]]}', b'{"t":"dict","v":[["e",["AssertionError","",""]]]}'):
        os.write(3, struct.pack('!cI', b'a', len(body)) + body)
    os.read(3, 1)
### error_without_words
import sys
def f(x): raise ValueError
sys.modules['rlvr_code.inside.errors'].describe = lambda error: ''
### forged_whole_number
import os, struct
def f(x):
    for value in (b'1e999', b'-1e999', b'NaN', b'{"t":"int","v":"0x' + b'f' * 100000 + b'"}', b'{"t":"float","v":"inf"}', b'{"t":"int","v":[]}'):
        body = b'{"t":"dict","v":[["v",' + value + b'],["changed",{"t":"dict","v":[]}]]}'
        os.write(3, struct.pack('!cI', b'a', len(body)) + body)
    os.read(3, 1)
### colliding_hashes
import os, struct
def f(x):
    many = b','.join(b'{"t":"int","v":"%s"}' % hex(n * (2 ** 61 - 1)).encode() for n in range(300000))
    for body in (b'{"t":"dict","v":[["v",{"t":"set","v":[' + many + b']}],["changed",{"t":"dict","v":[]}]]}',):
        os.write(3, struct.pack('!cI', b'a', len(body)) + body)
    os.read(3, 1)
### colliding_keys
import os, struct
def f(x):
    many = b','.join(b'[{"t":"int","v":"%s"},1]' % hex(n * (2 ** 61 - 1)).encode() for n in range(300000))
    body = b'{"t":"dict","v":[["v",{"t":"dict","v":[' + many + b']}],["changed",{"t":"dict","v":[]}]]}'
    os.write(3, struct.pack('!cI', b'a', len(body)) + body)
    os.read(3, 1)
### fraction_to_be_reduced
import os, struct
def f(x):
    a, b = b'1' * 3000000, b'1' * 2999999 + b'0'
    body = b'{"t":"dict","v":[["v",{"t":"Fraction","v":[{"t":"int","v":"0x' + a + b'"},{"t":"int","v":"0x' + b + b'"}]}],["changed",{"t":"dict","v":[]}]]}'
    os.write(3, struct.pack('!cI', b'a', len(body)) + body)
    os.read(3, 1)
### nested_as_deep_as_can_be
import os, struct
def deep(n):
    body = b'{"t":"dict","v":[["v",' + b'[' * n + b']' * n + b'],["changed",{"t":"dict","v":[]}]]}'
    return struct.pack('!cI', b'a', len(body)) + body
def f(x):
    for n in (300, 320, 400, 440, 460, 480, 490, 900, 950): os.write(3, deep(n))
    os.read(3, 1)
### json_bomb_while_loading
import os, struct
body = b'[' * 1000000
os.write(3, struct.pack('!cI', b'l', len(body)) + body)
### half_a_character
def f(x): raise ValueError('\\ud800')
### half_a_character_while_loading
raise ValueError('\\udfff')
### json_bomb
import os, struct
def f(x):
    body = b'[' * 1000000
    os.write(3, struct.pack('!cI', b'a', len(body)) + body)
    os.read(3, 1)
""")

# -- finding the tests ---------------------------------------------------------------------------------
_add("""
### reads_frames
import sys
def texts():
    frame = sys._getframe()
    while frame:
        yield repr(frame.f_locals); yield repr(list(frame.f_globals.values())); frame = frame.f_back
def f(x): return attempt(lambda: ' '.join(texts()))
### reads_garbage_collector
import gc
def f(x): return attempt(lambda: ' '.join(repr(o)[:10**6] for o in gc.get_objects()))
### reads_inspect_stack
import inspect
def f(x): return attempt(lambda: ' '.join(str(i.frame.f_locals) + str(i.code_context) for i in inspect.stack()))
### reads_all_threads
import sys
def f(x): return attempt(lambda: ' '.join(str(one.f_locals) for one in sys._current_frames().values()))
### reads_own_memory
import ctypes, re
def f(x):
    base = id(object()) & ~0xfffff
    return attempt(lambda: b' '.join(ctypes.string_at(base + n * 4096, 4096) for n in range(512)))
### reads_proc_self_mem
def f(x):
    def way():
        with open('/proc/self/maps') as maps, open('/proc/self/mem', 'rb') as mem:
            for line in maps:
                a, b = (int(n, 16) for n in line.split()[0].split('-'))
                mem.seek(a)
                value = found(mem.read(min(b - a, 1 << 24)))
                if value: return value
    return attempt(way)
### reads_faulthandler
import faulthandler
def f(x):
    with open('t', 'w+') as file:
        faulthandler.dump_traceback(file); file.seek(0)
        return attempt(lambda: file.read())
### faulthandler_exit
import faulthandler
faulthandler.dump_traceback_later(.01, exit=True)
def f(x):
    while True: pass
### reads_source_files
import os, glob
def f(x): return attempt(*[lambda p=p: open(p).read() for p in glob.glob('/**/*test*', recursive=True)[:2000] + glob.glob('*')])
### reads_linecache
import linecache
def f(x): return attempt(lambda: str(linecache.cache))
### reads_standard_input
import os
def f(x): return attempt(lambda: os.read(0, 10**6), lambda: os.pread(0, 10**6, 0))
### reads_the_wire
import os
def f(x): return attempt(lambda: os.read(3, 10**6))
### imports_the_project
import sys
sys.path += ['{PROJECT}', '{PROJECT}/plugins/rlvr_code', '{PROJECT}/plugins/rlvr_code/tests', '{SITE}']
def read():
    import rlvr_core
    return 'SECRET={SECRET}'
steal(read)
### reads_left_overs_of_others
import os, glob
steal(*[lambda p=p: open(p).read() for p in glob.glob('/tmp/**', recursive=True) + glob.glob('{PROJECT}/**', recursive=True)])
""")

# -- reading outside ---------------------------------------------------------------------------------
_add("""
### reads_a_file
steal(lambda: open('{FILE}').read())
### reads_by_symlink
import os
os.symlink('{FILE}', 'link')
steal(lambda: open('link').read())
### reads_by_symlinked_folder
import os
os.symlink('/', 'root')
steal(lambda: open('root{FILE}').read())
### reads_by_hard_link
import os
steal(lambda: (os.link('{FILE}', 'hard'), open('hard').read())[1])
### reads_by_climbing
steal(lambda: open('../' * 30 + '{FILE}').read())
### reads_by_proc_root
steal(*[lambda p=p: open(f'/proc/{{p}}/root{FILE}').read() for p in (1, 2, 3, 'self', {PARENT})])
### reads_by_proc_cwd
steal(*[lambda p=p: open(f'/proc/{{p}}/cwd/../../../../../..{FILE}').read() for p in (1, 2, {PARENT})])
### reads_by_rename
import os
steal(lambda: (os.rename('{FILE}', 'mine'), open('mine').read())[1])
### reads_by_exec
import subprocess
steal(lambda: subprocess.check_output(['cat', '{FILE}']), lambda: subprocess.getoutput('cat {FILE}'))
### reads_by_os_system
import os
steal(lambda: (os.system('cat {FILE} > out'), open('out').read())[1], lambda: os.popen('cat {FILE}').read())
### reads_environment
import os
steal(lambda: str(os.environ), lambda: open('/proc/self/environ').read(), lambda: open('/proc/{PARENT}/environ').read(),
      *[lambda p=p: open(f'/proc/{{p}}/environ').read() for p in range(1, 400)])
### reads_memory_of_parent
import os
def way():
    with open('/proc/{PARENT}/maps') as maps, open('/proc/{PARENT}/mem', 'rb') as mem:
        for line in maps:
            a, b = (int(n, 16) for n in line.split()[0].split('-'))
            try: mem.seek(a); value = found(mem.read(min(b - a, 1 << 22)))
            except OSError: continue
            if value: return value
steal(way)
### reads_memory_by_system_call
import ctypes, os
def way(pid):
    text = ctypes.create_string_buffer(4096)
    class Vector(ctypes.Structure): _fields_ = [('base', ctypes.c_void_p), ('length', ctypes.c_size_t)]
    mine = Vector(ctypes.addressof(text), 4096)
    for n in range(16):
        theirs = Vector({ADDRESS} & ~0xfff, 4096)
        if call(310, pid, ctypes.byref(mine), 1, ctypes.byref(theirs), 1, 0) > 0: return text.raw
steal(*[lambda p=p: way(p) for p in ({PARENT}, os.getppid(), 1)])
### traces_parent
import os
steal(lambda: 'SECRET={SECRET}' if call(101, 16, os.getppid(), 0, 0) == 0 or call(101, 0x4206, {PARENT}, 0, 0) == 0 else None)
### takes_descriptors_of_others
import os
def way():
    for pid in (os.getppid(), 1, {PARENT}):
        handle = call(434, pid, 0)
        if handle >= 0 and any(call(438, handle, n, 0) >= 0 for n in range(12)): return 'SECRET={SECRET}'
steal(way)
### lists_the_home_folder
import os
steal(lambda: 'SECRET={SECRET}' if os.listdir('{HOME}') else None, lambda: 'SECRET={SECRET}' if os.listdir('{PROJECT}') else None)
### opens_the_terminal
steal(lambda: 'SECRET={SECRET}' if open('/dev/tty') else None, lambda: 'SECRET={SECRET}' if open('/dev/vda', 'rb') else None)
### opens_kernel_files
steal(*[lambda p=p: 'SECRET={SECRET}' if open(p, 'rb').read(1) else None for p in ('/proc/kcore', '/dev/mem', '/dev/kmsg', '/sys/kernel/vmcoreinfo', '/etc/shadow', '/etc/passwd', '/proc/version')])
### opens_by_handle
import ctypes
steal(lambda: 'SECRET={SECRET}' if call(303, -100, b'{FILE}', ctypes.create_string_buffer(128), ctypes.byref(ctypes.c_int()), 0) == 0 else None)
""")

# -- talking to others ---------------------------------------------------------------------------------
_add("""
### loopback
import socket
steal(lambda: socket.create_connection(('127.0.0.1', {PORT}), 2).recv(100), lambda: socket.create_connection(('localhost', {PORT}), 2).recv(100))
### loopback_other_addresses
import socket
steal(*[lambda a=a: socket.create_connection((a, {PORT}), 1).recv(100) for a in ('127.0.0.2', '0.0.0.0', '::1', '{ADDRESS_OUT}')])
### urllib
import urllib.request
steal(lambda: urllib.request.urlopen('http://127.0.0.1:{PORT}/', timeout=2).read())
### internet
import socket
steal(lambda: 'SECRET={SECRET}' if socket.create_connection(('1.1.1.1', 53), 2) else None, lambda: 'SECRET={SECRET}' if socket.getaddrinfo('example.com', 80) else None)
### udp
import socket
steal(lambda: 'SECRET={SECRET}' if socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', {PORT})) else None)
### unix_socket
import socket
def way(name):
    s = socket.socket(socket.AF_UNIX); s.settimeout(2); s.connect(name); return s.recv(100)
steal(lambda: way('{SOCKET}'))
### abstract_socket
import socket
def way(name):
    s = socket.socket(socket.AF_UNIX); s.settimeout(2); s.connect(name); return s.recv(100)
steal(lambda: way('\\0{ABSTRACT}'))
### socket_pair_to_elsewhere
import socket
def way():
    a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    for name in ('\\0{ABSTRACT}d', '{SOCKET}d'):
        try: a.sendto(b'x', name); return 'SECRET={SECRET}'
        except OSError: pass
        try: a.sendmsg([b'x'], [], 0, name); return 'SECRET={SECRET}'
        except OSError: pass
        try: a.connect(name); a.send(b'x'); return 'SECRET={SECRET}'
        except OSError: pass
steal(way)
### raw_sockets
import socket
steal(lambda: 'SECRET={SECRET}' if socket.socket(socket.AF_PACKET, socket.SOCK_RAW) else None, lambda: 'SECRET={SECRET}' if socket.socket(socket.AF_NETLINK, socket.SOCK_RAW) else None, lambda: 'SECRET={SECRET}' if socket.socket(40, socket.SOCK_STREAM) else None)
### listens
import socket
steal(lambda: 'SECRET={SECRET}' if socket.create_server(('', 0)) else None)
### system_v_memory
import ctypes
def way():
    number = call(29, {SHM_KEY}, 4096, 0)
    libc = ctypes.CDLL(None); libc.shmat.restype = ctypes.c_void_p
    return ctypes.string_at(libc.shmat(number, None, 0), 100) if number >= 0 else None
steal(way)
### leaves_system_v_objects
for number, args in ((29, (4242, 4096, 0o1777)), (64, (4242, 1, 0o1777)), (68, (4242, 0o1777))): call(number, *args)
steal(lambda: 'SECRET={SECRET}' if call(29, 4243, 4096, 0o1777) >= 0 else None)
### leaves_posix_objects
import os
from multiprocessing import shared_memory
attempt(lambda: open('/dev/shm/left', 'w').write('x'), lambda: open('/dev/mqueue/left', 'w').write('x'))
steal(lambda: 'SECRET={SECRET}' if shared_memory.SharedMemory('left', create=True, size=10) else None)
### leaves_message_queue
steal(lambda: 'SECRET={SECRET}' if call(240, b'left', 0o102, 0o777, None) >= 0 else None)
### leaves_keys
steal(lambda: 'SECRET={SECRET}' if call(248, b'user', b'left', b'data', 4, -4) >= 0 else None)
""")

# -- processes ---------------------------------------------------------------------------------------
_add("""
### fork_bomb
import os
while True:
    try: os.fork()
    except OSError: pass
### orphan
import os, time
def way():
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(600); os._exit(0)
        os._exit(0)
attempt(way)
### subprocess_left_running
import subprocess, sys
attempt(lambda: subprocess.Popen(['sleep', '600']), lambda: subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True))
### posix_spawn
import os, sys
attempt(lambda: os.posix_spawn(sys.executable, ['python', '-c', 'import time; time.sleep(600)'], {}))
### multiprocessing
import multiprocessing
def f(x): return attempt(lambda: multiprocessing.Pool(4).map(abs, [1, 2]) and None)
### clone_by_system_call
steal(lambda: 'SECRET={SECRET}' if call(56, 17, 0, 0, 0, 0) > 0 else None, lambda: 'SECRET={SECRET}' if call(57) > 0 else None, lambda: 'SECRET={SECRET}' if call(58) > 0 else None)
### clone3
import ctypes
steal(lambda: 'SECRET={SECRET}' if call(435, ctypes.create_string_buffer(88), 88) > 0 else None)
### threads_left_running
import threading, time
for _ in range(20): threading.Thread(target=time.sleep, args=(600,)).start()
### thread_bomb
import threading, time
while True:
    try: threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
    except RuntimeError: break
### signals_to_parent
import os, signal
for pid in (os.getppid(), 1, 2, {PARENT}, -1, 0, -{PARENT}):
    for one in (signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP, signal.SIGINT): attempt(lambda: os.kill(pid, one))
### signals_by_handle
import os, signal
for pid in (os.getppid(), 1, {PARENT}):
    attempt(lambda: signal.pidfd_send_signal(os.pidfd_open(pid), 9))
    call(129, pid, 9, bytes(128)); call(200, pid, 9); call(234, pid, pid, 9)
### signals_by_owner
import fcntl, os, signal, socket, struct
for pid in (os.getppid(), 1, {PARENT}):
    a, b = socket.socketpair()
    attempt(lambda: fcntl.fcntl(a, 10, signal.SIGKILL))
    attempt(lambda: fcntl.fcntl(a, 8, pid), lambda: fcntl.fcntl(a, 15, struct.pack('ii', 1, pid)))
    attempt(lambda: fcntl.fcntl(a, fcntl.F_SETFL, os.O_ASYNC))
    b.send(b'x')
steal(lambda: 'SECRET={SECRET}' if fcntl.fcntl(a, 8, os.getppid()) == 0 else None, lambda: 'SECRET={SECRET}' if fcntl.fcntl(a, 10, 9) == 0 else None)
### signals_to_groups
import os
for group in (os.getpgid(0), os.getsid(0), 1): attempt(lambda: os.killpg(group, 9))
### ignores_signals
import signal
for number in range(1, 64): attempt(lambda: signal.signal(number, signal.SIG_IGN))
def f(x):
    while True:
        try:
            while True: pass
        except BaseException: pass
### outlives_its_parent
import ctypes, os
ctypes.CDLL(None).prctl(1, 0); attempt(os.setsid, lambda: os.setpgid(0, 0))
def f(x):
    while True: pass
### limits_of_others
import resource, os
for pid in (os.getppid(), 1, {PARENT}): attempt(lambda: resource.prlimit(pid, resource.RLIMIT_NOFILE, (1, 1)))
### priority_of_others
import os
for pid in (os.getppid(), 1, {PARENT}): attempt(lambda: os.setpriority(os.PRIO_PROCESS, pid, 19), lambda: os.sched_setaffinity(pid, {{0}}))
""")

# -- privileges and the kernel --------------------------------------------------------------------------
_add("""
### becomes_root
import os
steal(lambda: 'SECRET={SECRET}' if os.setuid(0) is None else None, lambda: 'SECRET={SECRET}' if os.setgroups([0]) is None else None, lambda: 'SECRET={SECRET}' if os.getuid() == 0 else None)
### own_user_namespace
steal(*[lambda flag=flag: 'SECRET={SECRET}' if call(272, flag) == 0 else None for flag in (0x10000000, 0x10020000, 0x20000, 0x40000000, 0x20000000)])
### other_namespaces
import os
steal(*[lambda k=k, p=p: 'SECRET={SECRET}' if call(308, os.open(f'/proc/{{p}}/ns/{{k}}', 0), 0) == 0 else None for k in ('net', 'mnt', 'user', 'pid') for p in (1, {PARENT})])
### mounts
steal(lambda: 'SECRET={SECRET}' if call(165, b'proc', b'.', b'proc', 0, 0) == 0 else None, lambda: 'SECRET={SECRET}' if call(165, b'/', b'.', 0, 4096, 0) == 0 else None, lambda: 'SECRET={SECRET}' if call(428, -100, b'/', 1) >= 0 else None)
### changes_root
import os
steal(lambda: 'SECRET={SECRET}' if os.chroot('.') is None else None, lambda: 'SECRET={SECRET}' if call(155, b'.', b'.') == 0 else None)
### raises_limits
import resource
def way(kind):
    soft, hard = resource.getrlimit(kind)
    resource.setrlimit(kind, (hard + 1, hard + 1))
    return 'SECRET={SECRET}'
steal(*[lambda k=k: way(k) for k in (resource.RLIMIT_AS, resource.RLIMIT_CPU, resource.RLIMIT_NPROC, resource.RLIMIT_FSIZE)])
### own_filter
import ctypes, struct
steal(lambda: 'SECRET={SECRET}' if ctypes.CDLL(None).prctl(22, 2, struct.pack('@HP', 0, 0)) == 0 else None, lambda: 'SECRET={SECRET}' if call(317, 1, 0, 0) == 0 else None)
### foreign_system_calls
import ctypes, mmap
def way():
    page = mmap.mmap(-1, 4096, prot=7)
    page.write(bytes.fromhex('b80c000000cd80c3'))
    ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()
    return 'SECRET={SECRET}'
steal(way)
### x32_system_calls
steal(lambda: 'SECRET={SECRET}' if call(0x40000000 + 39) > 0 else None)
### rare_system_calls
import ctypes
steal(*[lambda n=n, a=a: 'SECRET={SECRET}' if call(n, *a) >= 0 else None for n, a in {{
    425: (8, ctypes.create_string_buffer(120)), 323: (0,), 321: (0, ctypes.create_string_buffer(72), 72),
    298: (ctypes.create_string_buffer(128), 0, -1, -1, 0), 250: (0, -3, 0), 304: (-1, ctypes.create_string_buffer(8), 0), 313: (0, b'', 0),
    246: (0, 0, 0, 0), 169: (0xfee1dead, 672274793, 0, 0), 167: (b'x', 0), 319: (b'x', 0), 253: (), 300: (0, 0), 135: (0xffffffff,)}}.items()
    if n not in (135,)])
### own_landlock
import os
def way():
    import ctypes
    ruleset = call(444, (15).to_bytes(8, 'little'), 8, 0)
    return 'SECRET={SECRET}' if ruleset >= 0 else None
steal(way)
### writes_to_the_terminal
import fcntl
steal(*[lambda d=d: 'SECRET={SECRET}' if fcntl.ioctl(d, 0x5412, b'x') is not None else None for d in (0, 1, 2)])
### becomes_traceable
import ctypes
steal(lambda: 'SECRET={SECRET}' if ctypes.CDLL(None).prctl(4, 1, 0, 0, 0) == 0 else None)
""")

# -- filling up ----------------------------------------------------------------------------------------
_add(
    """
### memory_bomb
x = []
while True: x.append(bytearray(1 << 24))
### memory_bomb_that_catches
def f(x):
    kept = []
    while True:
        try: kept.append(bytearray(1 << 20))
        except MemoryError: pass
### memory_file
import ctypes
steal(lambda: 'SECRET={SECRET}' if call(319, b'x', 0) >= 0 else None)
### constant_folding_bomb
def f(x): return (((((2 ** 100) ** 100) ** 100) ** 100) ** 100)
### huge_integer
def f(x): return 10 ** (10 ** 7)
### integer_that_cannot_be_shown
def f(x): return 10 ** 5000
### key_that_cannot_be_shown
def f(x): return {{10 ** 5000: 1, (10 ** 5000,): 2}}
### huge_text
def f(x): return 'x' * (1 << 28)
### endless_list
def f(x):
    value = []
    value.append(value)
    return value
### deep_list
def f(x):
    value = []
    for _ in range(10**6): value = [value]
    return value
### endless_iterator
import itertools
def f(x): return itertools.count()
### regex_bomb
import re
def f(x): return re.match('(a+)+$', 'a' * 60 + 'b')
### fills_the_disk
number = 0
while True:
    with open(f'file{{number}}', 'wb') as file: file.write(bytes(1 << 20))
    number += 1
### many_files
number = 0
while True:
    open(f'file{{number}}', 'wb').close(); number += 1
### deep_folders
import os
for _ in range(3000):
    os.mkdir('d'); os.chdir('d')
### locked_folders
import os
os.makedirs('a/b/c'); open('a/b/c/file', 'w').close()
for name in ('a/b/c', 'a/b', 'a'): os.mkdir(name + '/locked', 0)
### odd_names
import os
for name in (b'\\xff\\xfe', b'-rf', b' ', b'a\\nb', b'*' * 255): os.mkdir(name); open(name + b'/x', 'w').close() if len(name) < 200 else None
### links_in_circles
import os
os.symlink('.', 'self'); os.symlink('loop', 'loop'); os.symlink('/', 'root'); os.symlink('/etc', 'etc')
### writes_outside
import os
steal(*[lambda p=p: 'SECRET={SECRET}' if open(p + '/rlvr-left', 'w').write('x') else None for p in ('/', '/etc', '/usr', '/usr/lib', '/var/tmp', '/dev', '{HOME}', '{FOLDER}', '{PROJECT}', '{STDLIB}')])
### changes_files_outside
import os
attempt(lambda: os.chmod('{FILE}', 0), lambda: os.utime('{FILE}', (0, 0)), lambda: os.truncate('{FILE}', 0), lambda: os.unlink('{FILE}'), lambda: os.rename('{FILE}', '{FILE}x'))
### truncates_outside
import os
for name in ('{FILE}', os.__file__):
    for way in (os.O_RDONLY, 3): attempt(lambda: os.open(name, way | os.O_TRUNC))
    attempt(lambda: os.truncate(name, 0))
steal(*[lambda w=w: 'SECRET={SECRET}' if os.open('mine', os.O_CREAT | os.O_TRUNC | w) else None for w in (0, 3)])
### changes_the_library
import os
attempt(lambda: open(os.__file__, 'a').write('x'), lambda: os.unlink(os.__file__), lambda: os.chmod(os.__file__, 0))
### sleeps
import time
def f(x): time.sleep(600)
### sleeps_while_loading
import time; time.sleep(600)
### stops_reading
import time
def f(x):
    yield 1
    time.sleep(600)
### many_callbacks
def f(x):
    return [object() for _ in range(10**6)]
### slow_repr
class Slow:
    def __repr__(self):
        while True: pass
    def __str__(self):
        while True: pass
def f(x): raise ValueError(Slow())
### no_source
\x00\x01\x02
### deep_source
x = """
    + "(" * 5000
    + "1"
    + ")" * 5000
    + """
### long_source
x = """
    + "-" * 100_000
    + """1
"""
)

# -- a second look -----------------------------------------------------------------------------------
_add("""
### descriptors_left_open
import os
steal(*[lambda d=d: os.pread(d, 10**6, 0) for d in range(3, 2000)], *[lambda d=d: 'SECRET={SECRET}' if os.fstat(d) and d > 3 else None for d in range(4, 2000)])
### descriptors_by_name
steal(*[lambda p=p, d=d: open(f'{{p}}/{{d}}', 'rb').read(10**6) for p in ('/proc/self/fd', '/dev/fd', '/proc/1/fd', '/proc/2/fd', '/proc/{PARENT}/fd') for d in range(12)], lambda: open('/dev/stdin').read())
### handle_of_the_peer
import socket
def way():
    handle = int.from_bytes(socket.socket(fileno=3).getsockopt(socket.SOL_SOCKET, 77, 4), 'little')
    ways = [call(424, handle, 9, 0, 0), call(438, handle, 0, 0), call(16, handle, 0xFF01, 0), call(440, handle, 0, 0, 20, 0), call(448, handle, 0)]
    return 'SECRET={SECRET}' if any(one >= 0 for one in ways) else None
steal(way)
### options_of_the_wire
import socket, struct
s = socket.socket(fileno=3)
for option in range(1, 84):
    for value in (0, 1, 2**31 - 1): attempt(lambda: s.setsockopt(socket.SOL_SOCKET, option, value))
steal(lambda: 'SECRET={SECRET}' if s.setsockopt(socket.SOL_SOCKET, 33, 1 << 30) is None else None, lambda: 'SECRET={SECRET}' if s.setsockopt(socket.SOL_SOCKET, 32, 1 << 30) is None else None)
### wire_shut_down
import socket
socket.socket(fileno=3).shutdown(socket.SHUT_RDWR)
### out_of_band
import socket
def f(x):
    for _ in range(1000): attempt(lambda: socket.socket(fileno=3).send(b'x', socket.MSG_OOB | socket.MSG_DONTWAIT))
### half_a_frame
import os, struct
def f(x):
    os.write(3, struct.pack('!cI', b'a', 1000) + b'{{"t":')
    os._exit(0)
### frames_of_no_kind
import os, struct
def f(x):
    for kind in range(256): os.write(3, struct.pack('!BI', kind, 0))
### frames_without_a_body
import os, struct
def f(x):
    while True: os.write(3, struct.pack('!cI', b'a', 0) * 4096)
### frames_of_the_keeper
import os, struct
def f(x):
    for kind in b'RoetELb': os.write(3, struct.pack('!BI', kind, 2) + b'{{}}')
    os.read(3, 1)
### loaded_twice
import os, struct
body = b'{{"ok": true}}'
os.write(3, (struct.pack('!cI', b'l', len(body)) + body) * 3)
### loaded_with_other_words
import os, struct
for body in (b'{{"ok": 1}}', b'true', b'{{"ok": "true"}}', b'[]'): os.write(3, struct.pack('!cI', b'l', len(body)) + body)
### answers_itself_from_what_is_asked
import json, os, struct
body = b'{{"ok": true}}'
os.write(3, struct.pack('!cI', b'l', len(body)) + body)
while True:
    data = os.read(3, 1 << 20)
    if not data: break
    value = found(data)
    body = json.dumps({{"t": "dict", "v": [["v", value], ["changed", {{"t": "dict", "v": []}}]]}}).encode()
    os.write(3, struct.pack('!cI', b'a', len(body)) + body)
### reads_the_wire_beside_the_host
import os, threading
seen = []
def listen():
    while True: seen.append(os.read(3, 1 << 16))
threading.Thread(target=listen, daemon=True).start()
def f(x): return attempt(lambda: b''.join(seen))
### tags_of_our_own
import os, struct
def f(x):
    for tag in ('name', 'callback', 'method', 'id', 'handle'):
        for value in ('"f"', '0', '[0,true,true]', '[]', 'null'):
            body = ('{{"t":"dict","v":[["v",{{"t":"%s","v":%s}}],["changed",{{"t":"dict","v":[]}}]]}}' % (tag, value)).encode()
            os.write(3, struct.pack('!cI', b'a', len(body)) + body)
    os.read(3, 1)
### changes_what_it_was_not_given
import os, struct
def f(x):
    body = b'{{"t":"dict","v":[["v",1],["changed",{{"t":"dict","v":[[-1,[]],[5,[]],["a",[]],[{{"t":"slice","v":[null,null,null]}},[]]]}}]]}}'
    os.write(3, struct.pack('!cI', b'a', len(body)) + body)
    os.read(3, 1)
### keys_within_keys
import os, struct
def f(x):
    key = b'"\\'\\\\"\\\\\\\\"'
    for _ in range(60): key = b'{{"t":"dict","v":[[' + key + b',1]]}}'
    body = b'{{"t":"dict","v":[["v",' + key + b'],["changed",{{"t":"dict","v":[]}}]]}}'
    os.write(3, struct.pack('!cI', b'a', len(body)) + body)
    os.read(3, 1)
### answer_in_another_encoding
import os, struct
def f(x):
    for code in ('utf-16', 'utf-32', 'utf-8-sig', 'cp500'):
        body = '{{"t":"dict","v":[["v",true],["changed",{{"t":"dict","v":[]}}]]}}'.encode(code)
        os.write(3, struct.pack('!cI', b'a', len(body)) + body)
    os.write(3, struct.pack('!cI', b'a', 3) + b'"\\xff"')
    os.read(3, 1)
### answer_drop_by_drop
import os, struct, time
def f(x):
    for one in struct.pack('!cI', b'a', 1000) + b' ' * 1000: os.write(3, bytes([one])); time.sleep(.001)
### answer_as_long_as_may_be
def f(x): return [0] * 8_000_000
### decimal_without_end
from decimal import Decimal
def f(x): return Decimal('1E+999999999')
### signalling_not_a_number
from decimal import Decimal
def f(x): return Decimal('sNaN')
### complex_not_a_number
def f(x): return complex('nan+nanj')
### minus_zero
def f(x): return -0.0
### lying_inner_parts
class All(tuple):
    def __iter__(self): return iter(())
    def __len__(self): return 0
    def __eq__(self, other): return True
    __hash__ = tuple.__hash__
def f(x): return [All((1,)), {{All((2,)): All()}}]
### lying_order_of_bases
class Meta(type):
    __mro__ = property(lambda cls: (int, object))
    def mro(cls): return [cls, object]
    def __instancecheck__(cls, other): return True
class All(metaclass=Meta):
    def __eq__(self, other): return True
    def __add__(self, other): return True
def f(x): return All()
### reflected_comparison
class All(int):
    def __eq__(self, other): globals()['seen'] = other; return True
    __hash__ = int.__hash__
seen = 0
def f(x): return All(seen)
### deleter_that_exits
import os
class Last:
    def __del__(self): os._exit(0)
def f(x):
    Last(); return 1
### deleter_that_prints
class Last:
    def __del__(self): print('OK', flush=True)
keep = Last()
def f(x): del globals()['keep']
### collector_that_exits
import gc, os, weakref
gc.callbacks.append(lambda *a: os._exit(0))
def f(x): gc.collect()
### error_with_a_lying_name
class AssertionError(BaseException):
    __name__ = property(lambda self: 'StopIteration')
    def __str__(self): raise self
def f(x): raise AssertionError
### stop_iteration_by_another_name
class Stop(StopIteration): pass
def f(x): raise Stop(1)
### group_of_errors
def f(x): raise BaseExceptionGroup('x', [SystemExit(0), KeyboardInterrupt()])
### writes_where_it_reads
import os
def f(x):
    attempt(lambda: os.ftruncate(0, 0), lambda: os.pwrite(0, b'x' * 99, 0), lambda: os.lseek(0, 0, 2))
### half_a_letter
import os
def f(x):
    os.write(1, b'\\xe2\\x82'); os.write(2, b'\\xf0\\x9f'); os.write(1, b'\\x00\\x1b[2J\\r\\x08')
### forged_note_of_omission
print('x' * 70000 + '\\n[... 5 bytes left out ...]\\n')
### own_limits_and_core
import os, resource
for kind in range(16): attempt(lambda: resource.setrlimit(kind, (0, resource.getrlimit(kind)[1])) if kind != resource.RLIMIT_AS else None)
attempt(lambda: resource.setrlimit(resource.RLIMIT_CORE, (1 << 20, 1 << 20)))
def f(x): os.abort()
### spared_when_memory_is_short
steal(*[lambda p=p: 'SECRET={SECRET}' if open(f'/proc/{{p}}/oom_score_adj', 'w').write('-1000') else None for p in ('self', 1, {PARENT})], lambda: 'SECRET={SECRET}' if open('/proc/{PARENT}/oom_score_adj', 'w').write('1000') else None)
### first_of_all
import os
steal(lambda: 'SECRET={SECRET}' if os.nice(-5) < 0 else None, lambda: 'SECRET={SECRET}' if os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)) is None else None, lambda: 'SECRET={SECRET}' if call(251, 1, 0, 1 << 13) == 0 else None)
### control_groups
import glob
steal(*[lambda p=p: 'SECRET={SECRET}' if open(p + '/cgroup.procs', 'w').write('0') else None for p in ('/sys/fs/cgroup', '/sys/fs/cgroup/memory', '/sys/fs/cgroup/pids', '/sys/fs/cgroup/unified')], lambda: 'SECRET={SECRET}' if call(165, b'x', b'.', b'cgroup2', 0, 0) == 0 else None)
### keyrings
steal(*[lambda n=n: 'SECRET={SECRET}' if call(248, b'user', b'left', b'data', 4, n) >= 0 or call(250, 0, n, 1) >= 0 else None for n in range(-8, 0)], lambda: 'SECRET={SECRET}' if call(249, b'user', b'left', 0, 0) >= 0 else None)
### other_families
import socket
steal(*[lambda n=n, k=k: 'SECRET={SECRET}' if socket.socket(n, k) else None for n in (15, 17, 26, 29, 30, 31, 38, 40, 41, 42, 43, 44, 45) for k in (1, 2, 3, 5)], *[lambda n=n: 'SECRET={SECRET}' if call(53, n, 1, 0, bytes(8)) == 0 else None for n in (2, 10, 16, 30, 40)])
### secret_memory
steal(lambda: 'SECRET={SECRET}' if call(447, 0) >= 0 else None, lambda: 'SECRET={SECRET}' if call(329, -1, 0) >= 0 else None, lambda: 'SECRET={SECRET}' if call(149, id(0), 1 << 20) == 0 and call(151, 3) == 0 else None)
### more_rare_system_calls
import ctypes
page = ctypes.create_string_buffer(4096)
steal(*[lambda n=n, a=a: 'SECRET={SECRET}' if call(n, *a) >= 0 else None for n, a in {{
    426: (0, 1, 1, 1, 0, 0), 427: (0, 0, page, 0), 437: (-100, b'/', page, 24), 434: (1, 0), 440: (0, page, 1, 20, 0), 442: (-100, b'/', 0, page, 32),
    429: (-100, b'.', -100, b'.', 0), 430: (b'tmpfs', 0), 432: (0, 0, 0), 154: (1, page, 16), 172: (3,), 173: (0, 1, 1), 170: (b'left', 4), 164: (page, 0),
    227: (0, page), 159: (page,), 163: (b'left',), 312: (1, 1, 0, 0, 0), 279: (0, 0, 0, 0, 0, 0), 256: (0, 0, 0, 0), 153: (), 103: (3, page, 4096),
    129: (1, 9, page), 297: (1, 1, 9, page), 133: (b'left', 0o10666, 0), 259: (-100, b'left', 0o20666, 0x103), 188: (b'.', b'user.left', b'x', 1, 0),
    134: (), 179: (0, b'/', 0, 0), 203: (0, 8, page), 238: (1, 0, 0), 310: (1, 0, 0, 0, 0, 0), 311: (1, 0, 0, 0, 0, 0), 314: (0, page, 0), 315: (0, page, 48, 0), 462: (0, 4096, 0)}}.items()])
### options_of_the_process
import ctypes
libc = ctypes.CDLL(None)
steal(*[lambda o=o, a=a: 'SECRET={SECRET}' if libc.prctl(o, *a) == 0 else None for o, a in {{
    1: (0, 0, 0, 0), 8: (1, 0, 0, 0), 28: (1, 0, 0, 0), 29: (1, 0, 0, 0), 35: (1, 4096, 0, 0), 36: (1, 0, 0, 0), 38: (0, 0, 0, 0), 47: (2, 0, 0, 0), 59: (1, 0, 0, 0), 62: (1, 0, 1, 0)}}.items()])
### files_that_stick
import ctypes, fcntl, os
open('left', 'w').close(); os.mkdir('folder')
for name in ('left', 'folder'):
    handle = os.open(name, os.O_RDONLY)
    for value in (0x10, 0x20, 0x30): attempt(lambda: fcntl.ioctl(handle, 0x40086602, value.to_bytes(8, 'little')))
    attempt(lambda: os.setxattr(name, 'user.left', b'x'), lambda: os.chmod(name, 0), lambda: fcntl.flock(handle, fcntl.LOCK_EX))
attempt(lambda: os.mkfifo('pipe'), lambda: os.mknod('device'))
for flags in (1, 2, 4, 6): call(316, -100, b'left', -100, b'folder', flags); call(316, -100, b'.', -100, b'folder/x', flags)
### files_without_end
import os, threading
def make(n):
    os.mkdir(f'd{{n}}'); folder = os.open(f'd{{n}}', os.O_RDONLY)
    for i in range(10**7): os.close(os.open(str(i), os.O_CREAT | os.O_WRONLY, dir_fd=folder))
for n in range(3): threading.Thread(target=make, args=(n,), daemon=True).start()
def f(x): make(9)
### locks_what_all_share
import fcntl, os
for name in (os.__file__, '/dev/null', '/dev/zero', '.', '/', '/usr/lib', '/tmp'):
    attempt(lambda: fcntl.flock(os.open(name, os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB))
    attempt(lambda: fcntl.lockf(os.open(name, os.O_RDWR), fcntl.LOCK_EX | fcntl.LOCK_NB))
### timers_without_end
import struct
kept = bytearray(8)
for _ in range(100_000):
    if call(222, 1, struct.pack('QiiQQQQQQ', 0, 9, 0, 0, 0, 0, 0, 0, 0), bytes(kept)) < 0: break
call(222, 1, struct.pack('QiiiiQQQQQ', 0, 9, 4, 1, 0, 0, 0, 0, 0, 0), bytes(kept))
### pipes_without_end
import fcntl, os
def f(x):
    kept = []
    while True:
        try:
            kept.append(os.pipe()); fcntl.fcntl(kept[-1][1], 1031, 1 << 20); os.set_blocking(kept[-1][1], False); os.write(kept[-1][1], bytes(1 << 20))
        except OSError: break
### threads_of_small_stacks
import threading, time
threading.stack_size(32768)
def f(x):
    many = 0
    while True:
        try: threading.Thread(target=time.sleep, args=(600,), daemon=True).start(); many += 1
        except RuntimeError: break
    return {SECRET} if many > 40 else many
""")
