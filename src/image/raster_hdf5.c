/*
 * Datasets of HDF5 files: "file.h5:/path/to/data"; where a file holds one dataset only, it need not
 * be named. The library reads the chunks that a window touches and unpacks them.
 *
 * An HDF5 file may name other files (external links and data, virtual datasets) and filters to load
 * as plugins. All of that is refused: a picture does not get to open files.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "image/raster_format.h"

static bool probe(const unsigned char *head, size_t bytes)
{
    static const size_t places[] = { 0, 512, 1024, 2048 };
    for (int i = 0; i < 4; i++)
        if (bytes >= places[i] + 8 && memcmp(head + places[i], "\x89HDF\r\n\x1a\n", 8) == 0)
            return true;
    return false;
}

#ifdef WF_HAVE_HDF5
#include <hdf5.h>
#include <pthread.h>

enum { RANK = 4, SLAB = 4 << 20 };

struct hdf5 {
    hid_t file, dataset, space, type;
    int rank;
    int axes[RANK]; /* of the raster, for each of the array's */
    char *slab;
    size_t room;
};

#ifndef H5_HAVE_THREADSAFE
/* The library's state is one for the process, so is this. */
static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER; /* arch-ok: guards libhdf5 */
#endif

/* The library prints unless told otherwise, per thread; what the program around us wants comes back. */
struct quiet {
    H5E_auto2_t print;
    void *data;
};

static struct quiet enter(void)
{
#ifndef H5_HAVE_THREADSAFE
    (void)pthread_mutex_lock(&one_at_a_time);
#endif
    struct quiet q = { 0 };
    (void)H5Eget_auto2(H5E_DEFAULT, &q.print, &q.data);
    (void)H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    return q;
}

static void leave(struct quiet q)
{
    (void)H5Eset_auto2(H5E_DEFAULT, q.print, q.data);
#ifndef H5_HAVE_THREADSAFE
    (void)pthread_mutex_unlock(&one_at_a_time);
#endif
}

static bool open_file(struct wf_raster *r, struct hdf5 *f, struct wf_err *err)
{
    const hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    if (r->file.fd < 0) {
        /* From memory, for tests; the library does not write to a file opened for reading. */
        void *image = malloc((size_t)r->file.size);
        if (!image)
            return wf_raster_no_memory(r, err);
        memcpy(image, r->file.memory, (size_t)r->file.size);
        (void)H5Pset_fapl_core(access, 1 << 16, false);
        (void)H5Pset_file_image(access, image, (size_t)r->file.size);
        free(image);
        f->file = H5Fopen("image", H5F_ACC_RDONLY, access);
    } else {
        f->file = H5Fopen(r->file.name, H5F_ACC_RDONLY, access);
    }
    (void)H5Pclose(access);
    return f->file >= 0 ||
           wf_raster_refuse(r, err,
                            "not a whole HDF5 file: it is cut short or still open for writing "
                            "elsewhere, copy it again");
}

struct search {
    char found[512];
    int count;
};

static herr_t look_at(hid_t object, const char *name, const H5O_info_t *info, void *data)
{
    (void)object;
    struct search *s = data;
    if (info->type != H5O_TYPE_DATASET || strlen(name) >= sizeof s->found - 1)
        return 0;
    if (s->count++ == 0)
        (void)memcpy(s->found, name, strlen(name) + 1);
    return s->count > 1; /* two are enough to know */
}

static herr_t no_external(const char *parent, const char *group, const char *child,
                          const char *object, unsigned *flags, hid_t access, void *data)
{
    (void)parent, (void)group, (void)child, (void)object, (void)flags, (void)access, (void)data;
    return -1;
}

static bool open_dataset(struct wf_raster *r, struct hdf5 *f, struct wf_err *err)
{
    struct search s = { 0 };
    if (!r->part) {
        if (H5Ovisit(f->file, H5_INDEX_NAME, H5_ITER_NATIVE, look_at, &s) < 0)
            return wf_raster_refuse(r, err, "damaged: copy the file again");
        wf_raster_printable(s.found);
        if (s.count != 1)
            return wf_raster_refuse(r, err,
                                    s.count ? "several datasets: name one, as in '%s:/%s'"
                                            : "no dataset in it: save one with h5py",
                                    r->file.name, s.found);
    }
    const char *name = r->part ? r->part : s.found;
    const hid_t access = H5Pcreate(H5P_DATASET_ACCESS);
    (void)H5Pset_elink_cb(access, no_external, NULL);
    (void)H5Pset_chunk_cache(access, H5D_CHUNK_CACHE_NSLOTS_DEFAULT, WF_RASTER_WHOLE,
                             H5D_CHUNK_CACHE_W0_DEFAULT);
    f->dataset = H5Dopen2(f->file, name, access);
    (void)H5Pclose(access);
    return f->dataset >= 0 ||
           wf_raster_refuse(r, err, "no dataset '%s' in it: list them with 'h5ls -r'", name);
}

/* Chunks of reasonable size, filters that need no plugin, no data elsewhere. */
static bool check_storage(struct wf_raster *r, struct hdf5 *f, struct wf_err *err)
{
    const hid_t made = H5Dget_create_plist(f->dataset);
    const H5D_layout_t layout = made < 0 ? H5D_LAYOUT_ERROR : H5Pget_layout(made);
    hsize_t chunk[RANK] = { 1, 1, 1, 1 };
    int64_t extent[WF_RASTER_AXES] = { 1, 1, 1, 1 };
    uint64_t bytes = wf_sample_size(r->stored);
    bool plain = layout == H5D_CONTIGUOUS || layout == H5D_COMPACT || layout == H5D_CHUNKED;
    plain = plain && H5Pget_external_count(made) == 0;
    if (plain && layout == H5D_CHUNKED) {
        plain = H5Pget_chunk(made, f->rank, chunk) == f->rank;
        for (int i = 0; i < f->rank; i++) {
            extent[f->axes[i]] = (int64_t)chunk[i];
            plain = plain && !__builtin_mul_overflow(bytes, chunk[i], &bytes);
        }
        const int filters = H5Pget_nfilters(made);
        for (int i = 0; plain && i < filters; i++) {
            unsigned flags = 0, config = 0;
            size_t values = 0;
            const H5Z_filter_t filter =
                H5Pget_filter2(made, (unsigned)i, &flags, &values, NULL, 0, NULL, &config);
            plain = filter >= H5Z_FILTER_DEFLATE && filter < H5Z_FILTER_RESERVED &&
                    H5Zfilter_avail(filter) > 0;
        }
    }
    if (made >= 0)
        (void)H5Pclose(made);
    if (!plain)
        return wf_raster_refuse(r, err,
                                "a dataset that needs plugins or other files: write it again with "
                                "gzip ('h5repack -f GZIP=4')");
    if (layout == H5D_CHUNKED && bytes > WF_RASTER_WHOLE &&
        (bytes > WF_RASTER_BLOCK_MAX || bytes / WF_RASTER_RATIO > r->file.size))
        return wf_raster_refuse(r, err,
                                "chunks of %" PRIu64 " bytes are too large: write it again with "
                                "smaller ones ('h5repack -l CHUNK=256x256')",
                                bytes);
    if (layout == H5D_CHUNKED)
        r->info.tile = WF_SHAPE(1, extent[0], extent[1], extent[2], extent[3]);
    else
        r->info.tile = WF_SHAPE(1, 1, 1, r->info.width, r->info.channels);
    return true;
}

static bool take_type(struct wf_raster *r, struct hdf5 *f, struct wf_err *err)
{
    hid_t type = H5Dget_type(f->dataset);
    H5T_class_t kind = type < 0 ? H5T_NO_CLASS : H5Tget_class(type);
    if (kind == H5T_ENUM) { /* h5py's bool */
        const hid_t base = H5Tget_super(type);
        (void)H5Tclose(type);
        type = base;
        kind = type < 0 ? H5T_NO_CLASS : H5Tget_class(type);
    }
    const size_t size = kind == H5T_NO_CLASS ? 0 : H5Tget_size(type);
    const bool minus = kind == H5T_INTEGER && H5Tget_sign(type) == H5T_SGN_2;
    if (type >= 0)
        (void)H5Tclose(type);
    const int step = size == 1 ? 0 : size == 2 ? 1 : size == 4 ? 2 : size == 8 ? 3 : -1;
    static const enum wf_sample whole[4][2] = {
        { WF_SAMPLE_U8, WF_SAMPLE_I8 },
        { WF_SAMPLE_U16, WF_SAMPLE_I16 },
        { WF_SAMPLE_U32, WF_SAMPLE_I32 },
        { WF_SAMPLE_U64, WF_SAMPLE_I64 },
    };
    const hid_t native[4][2] = {
        { H5T_NATIVE_UINT8, H5T_NATIVE_INT8 },
        { H5T_NATIVE_UINT16, H5T_NATIVE_INT16 },
        { H5T_NATIVE_UINT32, H5T_NATIVE_INT32 },
        { H5T_NATIVE_UINT64, H5T_NATIVE_INT64 },
    };
    if (kind == H5T_INTEGER && step >= 0) {
        r->stored = whole[step][minus];
        f->type = native[step][minus];
    } else if (kind == H5T_FLOAT && step > 0) {
        r->stored = size == 8 ? WF_SAMPLE_F64 : WF_SAMPLE_F32; /* the library widens halves */
        f->type = size == 8 ? H5T_NATIVE_DOUBLE : H5T_NATIVE_FLOAT;
    } else {
        return wf_raster_refuse(r, err,
                                "a dataset that is not of numbers: save it as plain numbers");
    }
    r->info.sample = r->stored;
    return true;
}

static bool take_extents(struct wf_raster *r, struct hdf5 *f, struct wf_err *err)
{
    f->space = H5Dget_space(f->dataset);
    f->rank = f->space < 0 ? -1 : H5Sget_simple_extent_ndims(f->space);
    hsize_t dims[H5S_MAX_RANK] = { 0 };
    int64_t shape[RANK];
    if (f->rank > 0 && H5Sget_simple_extent_dims(f->space, dims, NULL) != f->rank)
        f->rank = -1;
    for (int i = 0; i < f->rank && i < RANK; i++) {
        if (dims[i] > INT32_MAX)
            return wf_raster_refuse(r, err, "extent %d of the dataset is %llu: too large, cut it",
                                    i, (unsigned long long)dims[i]);
        shape[i] = (int64_t)dims[i];
    }
    return wf_raster_from_array(r, f->rank, shape, f->axes, err);
}

static bool open_hdf5(struct wf_raster *r, struct wf_err *err)
{
    struct hdf5 *f = calloc(1, sizeof *f);
    if (!f)
        return wf_raster_no_memory(r, err);
    f->file = f->dataset = f->space = -1;
    r->state = f;
    const struct quiet q = enter();
    const bool ok = open_file(r, f, err) && open_dataset(r, f, err) && take_extents(r, f, err) &&
                    take_type(r, f, err) && check_storage(r, f, err);
    leave(q);
    return ok;
}

/* Rows [h0, h1) of plane d, all channels, to f->slab. */
static bool read_slab(const struct wf_raster_job *job, int64_t d, int64_t h0, int64_t h1,
                      struct wf_err *err)
{
    struct hdf5 *f = job->raster->state;
    const int64_t lo[] = { d, h0, job->lo[WF_RASTER_W], 0 };
    const int64_t hi[] = { d + 1, h1, job->hi[WF_RASTER_W], job->raster->info.channels };
    hsize_t start[RANK], count[RANK];
    for (int i = 0; i < f->rank; i++) {
        start[i] = (hsize_t)lo[f->axes[i]];
        count[i] = (hsize_t)(hi[f->axes[i]] - lo[f->axes[i]]);
    }
    const hid_t memory = H5Screate_simple(f->rank, count, NULL);
    const bool ok = memory >= 0 &&
                    H5Sselect_hyperslab(f->space, H5S_SELECT_SET, start, NULL, count, NULL) >= 0 &&
                    H5Dread(f->dataset, f->type, memory, f->space, H5P_DEFAULT, f->slab) >= 0;
    if (memory >= 0)
        (void)H5Sclose(memory);
    return ok || wf_raster_refuse(job->raster, err,
                                  "its pixels cannot be read: it is cut short or "
                                  "damaged, copy the file again");
}

static bool read_planes(const struct wf_raster_job *job, struct wf_err *err)
{
    struct wf_raster *r = job->raster;
    struct hdf5 *f = r->state;
    const int64_t w0 = job->lo[WF_RASTER_W], width = job->hi[WF_RASTER_W] - w0;
    const int64_t channels = r->info.channels;
    const int64_t row = width * channels * (int64_t)wf_sample_size(r->stored);
    /* At least the rows of a chunk, so that none is unpacked twice. */
    const int64_t rows = wf_min(wf_max(SLAB / row, 1), job->hi[WF_RASTER_H] - job->lo[WF_RASTER_H]);
    if (f->room < (size_t)(rows * row)) {
        free(f->slab);
        f->room = (size_t)(rows * row);
        f->slab = malloc(f->room);
        if (!f->slab) {
            f->room = 0;
            return wf_raster_no_memory(r, err);
        }
    }
    for (int64_t d = job->lo[WF_RASTER_D]; d < job->hi[WF_RASTER_D]; d++)
        for (int64_t h = job->lo[WF_RASTER_H]; h < job->hi[WF_RASTER_H]; h += rows) {
            const int64_t end = wf_min(h + rows, job->hi[WF_RASTER_H]);
            const struct wf_raster_block block = {
                .data = read_slab(job, d, h, end, err) ? f->slab : NULL,
                .lo = { d, h, w0, 0 },
                .hi = { d + 1, end, w0 + width, channels },
                .stride = { 0, width * channels, channels, 1 },
            };
            if (!block.data || !wf_raster_put(job, &block, err))
                return false;
        }
    return true;
}

static bool read_hdf5(const struct wf_raster_job *job, struct wf_err *err)
{
    const struct quiet q = enter();
    const bool ok = read_planes(job, err);
    leave(q);
    return ok;
}

static void close_hdf5(struct wf_raster *r)
{
    struct hdf5 *f = r->state;
    if (!f)
        return;
    const struct quiet q = enter();
    if (f->space >= 0)
        (void)H5Sclose(f->space);
    if (f->dataset >= 0)
        (void)H5Dclose(f->dataset);
    if (f->file >= 0)
        (void)H5Fclose(f->file);
    leave(q);
    free(f->slab);
    free(f);
}

#else
static bool open_hdf5(struct wf_raster *r, struct wf_err *err)
{
    return wf_raster_lacks(r, "libhdf5-dev", err);
}
static bool read_hdf5(const struct wf_raster_job *job, struct wf_err *err)
{
    return wf_raster_lacks(job->raster, "libhdf5-dev", err);
}
static void close_hdf5(struct wf_raster *r)
{
    (void)r;
}
#endif

const struct wf_raster_format wf_raster_hdf5 = {
    .name = "HDF5", .probe = probe, .open = open_hdf5, .read = read_hdf5, .close = close_hdf5
};
