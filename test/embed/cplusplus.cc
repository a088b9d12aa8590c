// cplusplus.cc -- a host in C++17: the header compiles there, lambdas serve as functions, and a guard ends scopes.
#include <cstring>
#include <string>
#include <vector>

#include "embed.h"

namespace {

class Scope {
public:
    explicit Scope(kr_context *c) : ctx(c), scope(kr_scope_begin(c)) {}
    ~Scope() { kr_scope_end(ctx, scope); }
    Scope(const Scope &) = delete;
    Scope &operator=(const Scope &) = delete;

private:
    kr_context *ctx;
    size_t scope;
};

std::string printed(kr_context *ctx, kr_value v)
{
    std::string s(kr_print(ctx, v, nullptr, 0), '\0');
    kr_print(ctx, v, &s[0], s.size() + 1);
    return s;
}

} // namespace

int main()
{
    kr_config config{};
    config.heap_limit = size_t{256} << 20;
    kr_vm *vm = nullptr;
    kr_context *ctx = nullptr;
    CHECK(kr_vm_new(&config, &vm, &ctx) == KR_OK);
    std::vector<double> seen;
    kr_define(
        ctx, "note", "(x)", "Keep X.",
        [](kr_context *c, int, kr_value *argv, void *user) {
            double d = 0;
            if (kr_to_real(c, argv[0], &d) == KR_OK)
                static_cast<std::vector<double> *>(user)->push_back(d);
            return argv[0];
        },
        &seen);
    {
        Scope scope(ctx);
        CHECK(printed(ctx, must(ctx, "(mapcar #'note '(1 2.5 3))")) == "(1 2.5 3)");
    }
    CHECK((seen == std::vector<double>{1, 2.5, 3}));
    CHECK(std::strcmp(kr_version(), KR_VERSION) == 0 && kr_abi_version() == KR_ABI_VERSION);
    kr_vm_free(ctx);
    return 0;
}
