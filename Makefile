# Everyday
#   make                  the Python environment .venv and the C programs; then bin/* run
#   make demo             the bundled model classifies six messages, another generates: 5 seconds
#                         (MODEL=FILE.gguf: that model)
#   make help             this list
#   make clean            remove what was compiled; .venv stays
#
# Checks
#   make test             the quick part of the tests, three minutes (FILES=tests/...: some of them)
#   make test-all         all tests, after make real-models; ends with what they lacked
#   make types            mypy on lib/sluice
#   make asan             the tests of the C core under AddressSanitizer and UBSan
#   make tiles            build/tiles: the kernels with AMX's tiles emulated, for their tests
#   make vocab-check      tokenizers against Hugging Face tokenizers and sentencepiece, minutes
#                         (STRINGS=100000: random strings a vocabulary)
#   make golden-check     logits and chats against fresh ones of transformers; installs torch
#   make golden           write tests/golden again and show what changed; installs torch
#   make training-check   the tests of the training that need torch
#   make spark-check      classify in Spark; installs Spark (435 MB), needs Java
#   make deb-check        install and remove the Debian package (root, debootstrap, lintian)
#   make soak             messages through a private Postfix whose processes are killed, half an
#                         hour, as root (MAILS=5000 KILLS=600)
#
# Models and figures
#   make real-models      fetch two published models (320 MB) and vocabularies (77 MB) for the tests
#   make model            train lib/sluice/data/spam.gguf from CORPORA, hours; resumes
#   make judge MAILS=DIR  accuracy on messages of your own, in DIR/ham and DIR/spam
#   make elsewhere        how well a linear model of the other corpora classifies each corpus
#   make bench-masks      token masks of JSON Schemas next to llguidance and XGrammar; installs torch
#                         (SCHEMAS=DIR MASKS_VOCAB=FILE.gguf)
#   make figures          tables and pictures of csrc/README.md, 6 minutes on an idle machine
#
# Packages and parts of them
#   make deb              build/deb/sluice_*.deb (debhelper, python3-pip, a network)
#   make milter           bin/mail-milter, a milter for Postfix (libmilter-dev)
#   make kernels hook man completion   the parts that `pip install .` needs: the library that Python
#                         loads, bin/mail-filter, manual pages, completion scripts
#
# V=1 prints whole commands, not one line for each room.

PYTHON = python3
V      = 0
Q      = $(if $(filter 0,$(V)),@)
, := ,
say    = @$(if $(filter 0,$(V)),echo "$(1)",:)

# All cores, unless -j says otherwise. A make inside make shares the jobs of the outer one.
ifeq ($(MAKELEVEL)$(filter -j% --jobserver%,$(MAKEFLAGS)),0)
MAKEFLAGS += -j$(shell nproc 2>/dev/null || getconf _NPROCESSORS_ONLN 2>/dev/null || echo 1)
endif

CFLAGS = -O3 -g -Wall -Wextra -Wvla
EXACT  = -Icsrc -std=c11 -fno-math-errno -fno-trapping-math -ffp-contract=off \
	-fPIC -fvisibility=hidden
SET    =
# -ffast-math is absent on purpose: it lets the compiler reorder sums, and then results depend on
# the instruction set. -ffp-contract=off: the compiler forms no fma of its own.
# -fno-math-errno and -fno-trapping-math change no bits. With them sqrtf and fmaf are single
# instructions, and comparisons of floats (exp_f32) are vectorized; only unused flags may differ.
# CFLAGS is the user's; EXACT and SET come after it.

# The compiler writes an object's headers to a .d file, which the last line of this file includes.
DEPEND = -MMD -MP

# The version stands in lib/sluice/__init__.py alone; a change recompiles the files that print it.
VERSION := $(shell sed -n 's/^VERSION = //p' lib/sluice/__init__.py)
VERSIONED = -DSLUICE_VERSION='$(VERSION)'

VENV   = .venv/bin/python3
ANY_PYTHON = $(if $(wildcard $(VENV)),$(VENV),$(PYTHON))
# pip's build environment is on PYTHONPATH and stays there
LIB_FIRST = "lib$${PYTHONPATH:+:$$PYTHONPATH}"
EXT    = lib/sluice/_kernels.abi3.so
ROOMS  = formats kernels runtime tokenizer grammar sampling
SRC   := $(foreach room,$(ROOMS),$(wildcard csrc/$(room)/*.c csrc/$(room)/*/*.c)) \
	csrc/mail/marking.c
OBJ   := $(SRC:csrc/%.c=build/%.o) build/_kernels.o

# counted NAME,OBJECTS: the target build/made/NAME, which prints the number of objects compiled.
define counted
build/made/$(1): $(2)
	@mkdir -p $$(@D) && touch $$@
	$$(call say,CC $(1) $$(words $$?))
endef

all: .venv/runtime
	@$(MAKE) --no-print-directory kernels hook PYTHON=$(VENV)

kernels: $(EXT)
	@:

# The program that Postfix starts. If a shared library cannot be loaded, or the mprotect of -z relro
# fails, a program ends with status 127 before its first instruction, and the message bounces. So it
# is static and without relro. Without a static libc it is dynamic. It begins in limits.c, not in
# libc, which would end it with 127 if there is too little memory.
HOOK_SRC := $(wildcard csrc/mail/filter/*.c) csrc/mail/client.c csrc/mail/marking.c
HOOK_OBJ := $(HOOK_SRC:csrc/%.c=build/filter/%.o)
HOOK_FLAGS = -Icsrc -std=c11 -Wall -Wextra -Wvla $(VERSIONED)
HOOK_ENTRY = $(if $(and $(findstring linux,$(MACHINE)),$(filter x86_64-% aarch64-%,$(MACHINE))),\
	-Wl$(,)-e$(,)mail_filter_entry)
hook: bin/mail-filter
	@:
$(eval $(call counted,mail-filter,$(HOOK_OBJ)))
bin/mail-filter: $(HOOK_OBJ) | build/made/mail-filter
	$(call say,LD $@)
	$(Q)$(CC) -static -Wl,-z,norelro $(HOOK_ENTRY) -o $@.new $^ 2>/dev/null || \
		$(CC) $(HOOK_ENTRY) -o $@.new $^
	$(Q)mv -f $@.new $@
build/filter/mail/filter/limits.o: HOOK_FLAGS += -fno-stack-protector
build/filter/%.o: csrc/%.c lib/sluice/__init__.py Makefile
	@mkdir -p $(@D)
	$(Q)$(CC) $(DEPEND) $(CFLAGS) $(HOOK_FLAGS) -c -o $@ $<

# Manual pages, from the commands' own declarations and the usage texts of the C programs.
man: kernels
	PYTHONPATH=$(LIB_FIRST) "$(ANY_PYTHON)" -m sluice.cli.pages build/man/man1

# Completion scripts of `sluice`, for three shells.
completion: kernels hook
	@mkdir -p build/completion/bash build/completion/zsh build/completion/fish
	complete() { PYTHONPATH=$(LIB_FIRST) "$(ANY_PYTHON)" \
		lib/sluice/start.py bin/sluice completion $$1 >build/completion/$$1/$$2; }; \
		complete bash sluice && complete zsh _sluice && complete fish sluice.fish

# A file named after an instruction set is compiled for it, every other file for the baseline.
# runtime/isa.c chooses the set at run time.
MACHINE := $(shell $(CC) -dumpmachine)
ifneq ($(findstring x86_64,$(MACHINE)),)
AVX2 = -mavx2 -mfma -mf16c
AVXVNNI = $(AVX2) -mavxvnni
AVX512 = $(AVX2) -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni \
	-mprefer-vector-width=512
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

build/mail/%.o build/asan/mail/%.o: SET = $(VERSIONED)
build/mail/marking.o build/asan/mail/marking.o: lib/sluice/__init__.py
build/%.o: csrc/%.c Makefile
	@mkdir -p $(@D)
	$(Q)$(CC) $(DEPEND) $(CFLAGS) $(EXACT) $(SET) -c -o $@ $<

# cffi, API mode: the glue is generated from the public headers. Without their preprocessor lines
# they are the cdef.
API := csrc/api/limits.h $(filter-out csrc/api/limits.h,$(wildcard csrc/api/*.h))
build/kernels.cdef: $(API) csrc/api | build
	$(Q)sed '/^ *#/d' $(API) >$@
build/kernels.src: $(API) csrc/api | build
	$(Q)printf '#include "%s"\n' $(API:csrc/%=%) >$@
build/_kernels.c: build/kernels.cdef build/kernels.src
	$(Q)"$(PYTHON)" -m cffi.gen_src read-sources sluice._kernels $^ $@ >/dev/null

# csrc/python declares the stable ABI, so Python's headers are not needed.
build/_kernels.o: build/_kernels.c csrc/python/Python.h $(API)
	$(Q)$(CC) -O1 -Wall -fPIC -Icsrc -Icsrc/python -c -o $@ $<

build:
	@mkdir -p build

# bin/* start .venv/bin/python3 -I. A .pth file with a relative path adds lib/ to its path, so the
# checkout can be moved.
PIP = -m pip install -q --disable-pip-version-check
.venv/runtime: lib/requirements.txt lib/sluice/convert/requirements.txt
	test -x $(VENV) || "$(PYTHON)" -m venv .venv
	$(VENV) $(PIP) -r lib/requirements.txt -r lib/sluice/convert/requirements.txt
	echo ../../../../lib \
		>$$($(VENV) -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/sluice.pth
	touch $@

.venv/test: .venv/runtime tests/requirements.txt lib/sluice/bench/requirements.txt \
		lib/sluice/evaluate/requirements.txt
	$(VENV) $(PIP) -r tests/requirements.txt -r lib/sluice/bench/requirements.txt \
		-r lib/sluice/evaluate/requirements.txt
	touch $@

.venv/bench: .venv/runtime lib/sluice/bench/requirements.txt
	$(VENV) $(PIP) -r lib/sluice/bench/requirements.txt
	touch $@

figures: all .venv/bench
	$(VENV) -m sluice.bench.figures

# JOBS processes, one more than the cores of a small machine, because tests wait. The quick tests are
# short and cheap to prepare, so an idle process takes some from another. Of all tests whole files go
# to a process, because some build in build/. Python keeps its compiled modules. FILES: the files to
# run.
JOBS   = 3
FILES  =
DIST   = loadfile
PYTEST = PYTHONDONTWRITEBYTECODE= $(VENV) -m pytest -n $(JOBS) --dist $(DIST)
test: DIST = worksteal
test: all .venv/test
	$(PYTEST) --quick $(FILES)

test-all: all .venv/test
	@$(MAKE) --no-print-directory real-models || \
		echo "not to be had here: what make real-models fetches"
	$(PYTEST) $(FILES)

types: .venv/test
	$(VENV) -m mypy

real-models: .venv/runtime
	$(VENV) tests/helpers/real_models.py

# Most of the time goes to the pre-tokenizers of Hugging Face.
STRINGS = 100000
VOCAB_TESTS = $(patsubst %,tests/tokenizer/test_%.py,bpe bpe_large vocab)
vocab-check: all .venv/test
	SLUICE_STRINGS=$(STRINGS) $(VENV) -m pytest $(VOCAB_TESTS) \
		-k "hugging_face or sentencepiece"

soak: MAILS = 5000
soak: KILLS = 600
soak: all .venv/test
	PYTHONPATH=tests:tests/helpers $(VENV) tests/helpers/soak.py --mails $(MAILS) --kills $(KILLS)

demo: demo-begins all
	@sh tests/helpers/demo.sh "$(MODEL)"
demo-begins:
	@[ -e $(EXT) ] || \
		echo "The build takes one to two minutes on two cores," \
			"and downloads packages from PyPI."

# A library for tests alone: tests/kernels/emulated_tiles.c replaces AMX's tile instructions, so
# SLUICE_ISA=amx runs wherever avx512 does. With build/tiles first on Python's path, it is used.
EMULATED = -DEMULATED_TILES -Itests/kernels
# package NAME: build/NAME/sluice, links to the Python files of lib/sluice for a library of its own.
package = $(Q)mkdir -p build/$(1)/sluice && cd lib/sluice && for f in *; do \
	case "$$f" in *.so|__pycache__) ;; \
	*) ln -sfn "$(CURDIR)/lib/sluice/$$f" "$(CURDIR)/build/$(1)/sluice/$$f" ;; esac done
TILES_O := $(patsubst csrc/%.c,%.o,$(wildcard csrc/kernels/x86/amx*.c)) \
	runtime/isa.o kernels/roofline.o
TILES_OBJ := $(TILES_O:%=build/tiles/%) build/tiles/emulated_tiles.o
$(eval $(call counted,tiles,$(TILES_OBJ)))
tiles: build/tiles/sluice/_kernels.abi3.so
	$(call package,tiles)
TILES_REST := $(filter-out $(TILES_O:%=build/%),$(OBJ))
build/tiles/sluice/_kernels.abi3.so: $(TILES_REST) $(TILES_OBJ) | build/made/tiles
	@mkdir -p build/tiles/sluice
	$(call say,LD $@)
	$(Q)$(CC) -shared -o $@ $^ -lm -pthread
build/tiles/%.o: csrc/%.c Makefile
	@mkdir -p $(@D)
	$(Q)$(CC) $(DEPEND) $(CFLAGS) $(EXACT) $(SET) $(EMULATED) -c -o $@ $<
build/tiles/emulated_tiles.o: tests/kernels/emulated_tiles.c Makefile
	@mkdir -p build/tiles
	$(Q)$(CC) $(DEPEND) $(CFLAGS) $(EXACT) $(SET) $(EMULATED) -c -o $@ $<

# A library with the sanitizers and emulated tiles. With build/asan first on Python's path, it is
# used.
SANITIZE = -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer -O1
SANITIZERS = $$($(CC) -print-file-name=libasan.so) $$($(CC) -print-file-name=libubsan.so)
asan: all .venv/test
	$(call package,asan)
	$(MAKE) --no-print-directory asan-library build/asan/mail-filter PYTHON=$(VENV)
	SLUICE_MAIL_FILTER="$(CURDIR)/build/asan/mail-filter" \
	$(PYTEST) tests/mail_filter/test_mail_filter*.py
	LD_PRELOAD="$(SANITIZERS)" ASAN_OPTIONS=detect_leaks=0 \
	PYTHONPATH="$(CURDIR)/build/asan" $(PYTEST) $(ASAN_TESTS)

ASAN_TESTS = \
	$(patsubst %,tests/kernels/test_%.py,kernels norms attention fast quant math64 threads \
		encode score) \
	$(patsubst %,tests/gguf/test_%.py,gguf llama2c) \
	$(patsubst %,tests/tokenizer/test_%.py,vocab bpe) \
	$(patsubst %,tests/grammar/test_%.py,grammar json_masks shortest) \
	$(patsubst %,tests/generate/test_%.py,sampler steps) \
	$(patsubst %,tests/model/test_%.py,model hparams) \
	$(patsubst %,tests/system/test_%.py,cores) \
	$(patsubst %,tests/mail/test_%.py,marking)

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
build/asan/filter/%.o: csrc/%.c lib/sluice/__init__.py Makefile
	@mkdir -p $(@D)
	$(Q)$(CC) $(DEPEND) $(CFLAGS) $(HOOK_FLAGS) $(SANITIZE) -c -o $@ $<
build/asan/%.o: csrc/%.c Makefile
	@mkdir -p $(@D)
	$(Q)$(CC) $(DEPEND) $(CFLAGS) $(EXACT) $(SET) $(EMULATED) $(SANITIZE) -c -o $@ $<
build/asan/emulated_tiles.o: tests/kernels/emulated_tiles.c Makefile | build
	@mkdir -p build/asan
	$(Q)$(CC) $(DEPEND) $(CFLAGS) $(EXACT) $(SET) $(EMULATED) $(SANITIZE) -c -o $@ $<

# Grammars next to other packages, which have an environment of their own; xgrammar brings torch.
MASKS_VENV = build/masks-venv/bin/python3
SCHEMAS = ../shared/data/schema/bench
MASKS_VOCAB = ../shared/data/vocab/ggml-vocab-llama-bpe.gguf
build/masks-venv/done: lib/requirements.txt lib/sluice/bench/masks-requirements.txt | build
	test -x $(MASKS_VENV) || "$(PYTHON)" -m venv build/masks-venv
	$(MASKS_VENV) $(PIP) -r lib/requirements.txt -r lib/sluice/bench/masks-requirements.txt
	touch $@

bench-masks: all build/masks-venv/done
	PYTHONPATH=$(LIB_FIRST) $(MASKS_VENV) -m sluice.bench.masks $(MASKS_VOCAB) $(SCHEMAS)

# torch and transformers have an environment of their own. The default wheel of torch for Linux
# brings 3 GB of CUDA; this installs the one without:
# PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu make golden
GOLDEN = build/golden-venv/bin/python3

build/golden-venv/done: tests/golden-requirements.txt | build
	test -x $(GOLDEN) || "$(PYTHON)" -m venv build/golden-venv
	$(GOLDEN) $(PIP) -r tests/golden-requirements.txt
	touch $@

golden: all .venv/test build/golden-venv/done
	$(GOLDEN) tests/helpers/golden_logits.py
	$(GOLDEN) tests/helpers/golden_real.py
	$(GOLDEN) tests/helpers/golden_folders.py
	$(GOLDEN) tests/helpers/golden_pb.py
	$(GOLDEN) tests/helpers/golden_templates.py
	$(GOLDEN) tests/helpers/golden_embed.py
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
	$(GOLDEN) tests/helpers/golden_embed.py --check

# The milter is not part of `make`, because it alone needs libmilter of Sendmail. Its tests build it
# with sanitizers: MILTER_SET="$(SANITIZE)" and another MILTER and MILTER_BUILD.
MILTER = bin/mail-milter
MILTER_BUILD = build/milter
MILTER_SET =
MILTER_SRC := $(wildcard csrc/mail/milter/*.c) csrc/mail/client.c csrc/mail/marking.c
MILTER_OBJ := $(MILTER_SRC:csrc/%.c=$(MILTER_BUILD)/%.o)

milter: $(MILTER)
	@:

$(eval $(call counted,mail-milter,$(MILTER_OBJ)))
$(MILTER): $(MILTER_OBJ) | build/made/mail-milter
	$(call say,LD $@)
	$(Q)$(CC) $(MILTER_SET) -o $@.new $^ -lmilter -pthread
	$(Q)mv -f $@.new $@

$(MILTER_BUILD)/%.o: csrc/%.c lib/sluice/__init__.py Makefile
	@mkdir -p $(@D)
	$(Q)$(CC) $(DEPEND) $(CFLAGS) -Icsrc -std=c11 $(MILTER_SET) $(VERSIONED) -c -o $@ $<

# Spark has an environment of its own, because it is large.
SPARK = build/spark-venv/bin/python3

build/spark-venv/done: tests/spark-requirements.txt | build
	test -x $(SPARK) || "$(PYTHON)" -m venv build/spark-venv
	$(SPARK) $(PIP) -r tests/spark-requirements.txt
	touch $@

spark-check: all .venv/test build/spark-venv/done
	$(VENV) -m pytest tests/classify/test_many_machines.py -k spark

# The Debian package is built in a copy of the tree with configs/debian as its debian directory. The
# objects are copied, too, so they are not compiled again.
DEB = build/deb/sluice
deb: all
	rm -rf build/deb
	mkdir -p $(DEB)
	tar -c --exclude='./.?*' --exclude=./build --exclude=./tests --exclude=./dist \
		--exclude=__pycache__ --exclude='*.so' \
		--exclude=./bin/mail-filter --exclude=./bin/mail-milter . | tar -x -C $(DEB)
	find build/* -type d \
		'(' -name '*venv*' -o -name deb -o -name asan -o -name tiles -o -name arm64 ')' -prune \
		-o -name '*.[do]' -print0 | tar -c --null -T - | tar -x -C $(DEB)
	cp -r configs/debian $(DEB)/debian
	printf '%s\n\n  * %s\n\n -- %s  %s\n' \
		'sluice ($(subst ",,$(VERSION))-1) unstable; urgency=medium' \
		'CHANGELOG.md has the changes.' \
		"$$(sed -n 's/^Maintainer: //p' configs/debian/control)" "$$(date -R)" \
		>$(DEB)/debian/changelog
	cd $(DEB) && env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL dpkg-buildpackage -b -us -uc

deb-check: all .venv/test
	$(VENV) -m pytest tests/packaging/test_deb.py

# The spam model. TRAIN="--leave-out enron --seconds 600": options of `python -m spam_training`.
CORPORA = ../shared/data/spam
TRAINING = build/training-venv/bin/python3

build/training-venv/done: lib/requirements.txt lib/spam_training/requirements.txt | build
	test -x $(TRAINING) || "$(PYTHON)" -m venv build/training-venv
	$(TRAINING) $(PIP) -r lib/requirements.txt -r lib/spam_training/requirements.txt
	touch $@

model: all build/training-venv/done
	PYTHONPATH=lib $(TRAINING) -m spam_training "$(CORPORA)" $(TRAIN)
	$(VENV) -c "from sluice.question import question; question.write_bundled()"

# Accuracy of the bundled model, or of JUDGE="-m MODEL -q QUESTION", on an external test set: MAILS,
# archives or folders with ham/ and spam/.
judge: all .venv/test
	PYTHONPATH=lib $(VENV) -m spam_training.external_test_set $(MAILS) $(JUDGE)

# Leave one corpus out: a linear model fitted to the other corpora classifies it. It shows how well
# any model can do on messages of other sources.
elsewhere: all build/training-venv/done
	PYTHONPATH=lib $(TRAINING) -m spam_training.leave_one_corpus_out "$(CORPORA)"

# The tests that need torch: a small training run with an interruption, and the network against the
# engine.
training-check: all build/training-venv/done
	$(TRAINING) $(PIP) -r tests/requirements.txt
	PYTHONPATH="$(CURDIR)/lib" $(TRAINING) -m pytest tests/training/test_training.py

clean:
	rm -rf build dist $(EXT) bin/mail-filter bin/mail-milter lib/*.egg-info

help:
	@sed -n '/^# Everyday/,/^$$/s/^# \{0,1\}//p' $(firstword $(MAKEFILE_LIST))

.PHONY: all asan asan-library bench-masks clean completion deb deb-check demo demo-begins elsewhere figures \
	golden golden-check help hook judge kernels man milter model real-models soak test \
	spark-check test-all tiles training-check types vocab-check

-include $(patsubst %.o,%.d,\
	$(OBJ) $(HOOK_OBJ) $(TILES_OBJ) $(ASAN_OBJ) $(ASAN_HOOK_OBJ) $(MILTER_OBJ))
