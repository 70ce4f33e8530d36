# A virtual environment, and a package of our own installed into it: pip runs the package's build backend in a
# process of its own. Nothing is fetched.
set -eu
export PIP_CONFIG_FILE=/dev/null PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INDEX=1 PIP_NO_CACHE_DIR=1
mkdir package
cat >package/pyproject.toml <<'END'
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
[project]
name = "tiny"
version = "1.0"
END
cat >package/backend.py <<'END'
import os, zipfile

def build_wheel(directory, config_settings=None, metadata_directory=None):
    with open(os.environ["LOADED"], "w") as loaded, open("/proc/self/maps") as maps:
        print(sum("bypath_preload" in line for line in maps), file=loaded)
    info = "tiny-1.0.dist-info"
    files = {
        "tiny.py": "def say():\n    print('tiny says', 6 * 7)\n",
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tiny\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": "[console_scripts]\ntiny = tiny:say\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{name},,\n" for name in files)
    name = "tiny-1.0-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(directory, name), "w") as wheel:
        for file, text in files.items():
            wheel.writestr(file, text)
    return name
END
python3 -m venv environment
. environment/bin/activate
pip install --quiet ./package
tiny
python -c 'import tiny; tiny.say()'
pip list | grep tiny
set +e
pip install --quiet no-such-package-anywhere
echo "pip: $?"
